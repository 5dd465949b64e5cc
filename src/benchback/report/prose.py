"""The verdict in sentences, made of typed claims: what to use, who takes how many times as long, what it depends on.

Every ratio says how many times as long; nothing is said to be so many times as fast.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchback import stats
from benchback.analysis.choices import Choice, Summary, Turn, summaries
from benchback.analysis.claims import ALL, Claim, claims_of
from benchback.analysis.evidence import evidence_of
from benchback.analysis.groups import Group, Setting, env_of, model_of
from benchback.analysis.progress import overtaking
from benchback.analysis.ranges import AXES, Axis, Range, axis_range
from benchback.analysis.source import Source
from benchback.analysis.wording import (
    WIDEST_TIE,
    evidence_text,
    percent,
    range_text,
    ratio_text,
    reason_text,
    remarks_text,
    setting_text,
    short_names,
    times_text,
    variant_name,
)
from benchback.measure.record import Cell
from benchback.stats import MARGIN, Comparison

MOST_BY_TASTE = 0.1
"""Variants that may differ by more than this are not a matter of taste yet."""

AXIS_WORDS = {"model": "model size", "env": "environment", "cell": "model size and environment"}
NOTHING = "No recommendation: no two variants did the same work."


@dataclass(frozen=True)
class Said:
    """What one setting says of the chosen environments and models, a sentence each."""

    setting: str
    recommendation: str = NOTHING
    comparisons: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Cells and variants that are not in the averages, and why."""
    evidence: str = ""
    """Whether the timed runs computed the same."""


@dataclass(frozen=True)
class Verdict:
    """What the campaign says: a recommendation, and the sentences of every setting."""

    recommendation: str
    settings: tuple[Said, ...]


def verdicts(source: Source, claims: Sequence[Claim]) -> dict[tuple[str, str], Verdict]:
    """The verdict for every choice of an environment and a model, `ALL` of them included."""
    found = summaries(source)
    places = dict.fromkeys((claim.env, claim.model) for claim in claims)
    return {place: _verdict(source, claims, found, *place) for place in {(ALL, ALL): None, **places}}


def verdict(source: Source, claims: Sequence[Claim], env: str = ALL, model: str = ALL) -> Verdict:
    """Every setting by itself; the recommendation is that of the first, and says where others differ."""
    return _verdict(source, claims, summaries(source), env, model)


def _verdict(source: Source, claims: Sequence[Claim], found: Sequence[Summary], env: str, model: str) -> Verdict:
    settings = {}
    for setting in source.settings:
        here = [claim for claim in claims if (claim.setting, claim.env, claim.model) == (setting, env, model)]
        groups = [g for g in source.settings[setting] if _chosen(g, env, model)]
        # The first summary of a setting has the reference that most groups have.
        summary = next((x for x in found if (x.setting, x.env, x.model) == (setting, env, model)), None)
        if groups:
            settings[setting] = _said(source, setting, here, summary, groups), summary
    said = tuple(each for each, _ in settings.values())
    if not said:
        return Verdict(NOTHING, ())
    first, *others = settings
    same = [x for x in others if _alike(settings[first][1], settings[x][1])]
    texts = [f"{where} the choice is the same." for where in _places(first, same)]
    for each in (x for x in others if x not in same):
        texts += [f"{where} not so: {settings[each][0].recommendation}" for where in _places(first, [each])]
    return Verdict(" ".join([said[0].recommendation, *texts]), said)


def _places(first: Setting, settings: Sequence[Setting]) -> Iterator[str]:
    """`With 4 and 16 agents` of settings that differ from the first in nothing else, `In ...` of the others."""
    agents = [x for x in settings if replace(x, agents=first.agents) == first]
    if agents:
        yield f"With {_listed([str(x.agents) for x in agents])} agents"
    if others := [setting_text(x) for x in settings if x not in agents]:
        yield f"In {_listed(others)}"


def _chosen(group: Group, env: str, model: str) -> bool:
    cell = group.cells[0]
    return env in (ALL, env_of(cell)) and model in (ALL, model_of(cell))


def _alike(a: Summary | None, b: Summary | None) -> bool:
    """Whether two summaries choose the same variants."""
    if a is None or b is None:
        return False
    names = [sorted(cell.variant for cell in x.choice.best) if x.choice else None for x in (a, b)]
    return names[0] == names[1] is not None and not a.turns and not b.turns


def _said(
    source: Source, setting: Setting, claims: Sequence[Claim], summary: Summary | None, groups: Sequence[Group]
) -> Said:
    title = setting_text(setting)
    evidence = f"{evidence_text(evidence_of(groups))}."
    if summary is None:
        return Said(title, comparisons=("Nothing can be compared: no two variants did the same work.",))
    shown = [claim for claim in claims if claim.metric == "steady" and not claim.subject.twin and not claim.few]
    depends = (
        *(_along(summary, groups, axis) for axis in ("model", "env")),
        *_length(source, summary, groups),
    )
    return Said(title, recommendation(summary), tuple(map(sentence, shown)), depends, missing(summary), evidence)


def sentence(claim: Claim) -> str:
    """`Flax NNX, split takes 1.03x [1.02, 1.04] as long as Flax Linen, jit per iteration (4 cells, 16 blocks).`"""
    mine, theirs, row = variant_name(claim.subject), variant_name(claim.rival), claim.overall
    scope = f"{row.cells} cell{'s' if row.cells != 1 else ''}, {row.n} blocks"
    if claim.along is not None:
        words = AXIS_WORDS[claim.along.axis]
        span = f"{range_text(claim.along)} as long as {theirs} per iteration"
        return f"{mine} takes {span}, depending on the {words} ({scope})."
    if row.ratio is None:
        return f"{mine} cannot be compared with {theirs}: {remarks_text(row)}."
    ratio = ratio_text(row.ratio, row.low, row.high)
    if row.verdict is None:
        return f"{mine} takes {ratio} as long as {theirs} per iteration, without a verdict: {remarks_text(row)}."
    takes = f"takes {ratio} as long as {theirs} per iteration ({scope})"
    if row.verdict in (stats.Verdict.FASTER, stats.Verdict.SLOWER):
        return f"{mine} {takes}."
    if row.at_most is None or row.at_most > WIDEST_TIE:
        return f"{mine} {takes}: more blocks are needed."
    small = f", and differences within {MARGIN:.0%} do not matter" if row.verdict is stats.Verdict.EQUIVALENT else ""
    return f"{mine} {takes}: a tie, they differ by at most {percent(row.at_most)}{small}."


def recommendation(summary: Summary) -> str:
    """What to use, in one sentence or two: the fastest, or those among which nothing decides."""
    if summary.choice is None:
        why = "no cell has two complete blocks of every variant" if summary.claims else "nothing can be compared"
        causes = [reason_text(claim.overall) for claim in summary.unknown[:1]]
        return f"No recommendation: {'; '.join((why, *causes))}."
    cells = [summary.reference, *(claim.subject for claim in summary.claims)]
    names = short_names(cells)
    text = _turn_text(summary.turns[0], names) if summary.turns else _choice_text(summary, names)
    return f"{text}{_left_out(summary, names)}"


def _choice_text(summary: Summary, names: dict[str, str]) -> str:
    choice = summary.choice
    assert choice is not None
    others = _longer(summary.slower, names)
    best = [names[cell.variant] for cell in choice.best]
    if len(best) == 1:
        return f"Use {best[0]}: it is faster than every other" + (f"; {others}." if others else ".")
    taste = "choose among the first by taste" if others else "choose by taste"
    if choice.at_most is None or choice.at_most > WIDEST_TIE:
        tie, taste = "cannot be told apart yet", "more blocks are needed to choose"
    elif choice.told_apart:
        tie = f"differ by at most {percent(choice.at_most)}"
    else:
        tie = f"cannot be told apart below {percent(choice.at_most)}"
    if choice.at_most is not None and choice.at_most > MOST_BY_TASTE:
        taste = "more blocks are needed to choose"
    return f"{_listed(best)} {tie}{f'; {others}' if others else ''}: {taste}."


def _longer(claims: Sequence[Claim], names: dict[str, str]) -> str:
    """`Flax NNX takes 1.10x and PyTorch 1.35x (large) to 3.20x (small) as long`; empty of nothing."""
    parts = [f"{names[claim.variant]}{'' if at else ' takes'} {_times(claim)}" for at, claim in enumerate(claims)]
    return f"{_listed(parts)} as long" if parts else ""


def _turn_text(turn: Turn, names: dict[str, str]) -> str:
    """The choice at every value of the axis along which it changes."""
    parts = [f"with {value} use {_either(choice, names)}" for value, choice in turn.choices]
    return f"The choice depends on the {AXIS_WORDS[turn.axis]}: {'; '.join(parts)}."


def _either(choice: Choice, names: dict[str, str]) -> str:
    best = [names[cell.variant] for cell in choice.best]
    return best[0] if len(best) == 1 else f"{', '.join(best[:-1])} or {best[-1]}"


def _left_out(summary: Summary, names: dict[str, str]) -> str:
    """What the recommendation is not about."""
    titles = dict.fromkeys(hole.title for hole in summary.holes)
    who = dict.fromkeys(names[hole.cell.variant] for hole in summary.holes)
    all_cells = len(summary.cells) + len([title for title in titles if title not in summary.cells])
    text = ""
    if titles:
        text += f" {len(titles)} of {all_cells} cells are left out, in which {_listed(list(who))} "
        text += f"{'has' if len(who) == 1 else 'have'} no result."
    if summary.unknown:
        text += f" Nothing is known about {_listed([variant_name(claim.subject) for claim in summary.unknown])}."
    return text


def missing(summary: Summary) -> tuple[str, ...]:
    """Every cell and variant that is not in the averages, and why."""
    holes = [f"{variant_name(h.cell)} in {h.title}: {reason_text(h.comparison)}." for h in summary.holes]
    unknown = [f"{variant_name(x.subject)}: {reason_text(x.overall)}." for x in summary.unknown]
    few = len(summary.few)
    rest = [f"{few} more variant{'s were' if few > 1 else ' was'} measured in few cells."] if few else []
    return (*unknown, *holes, *rest)


def _times(claim: Claim) -> str:
    """`1.02x`, or `1.30x (large) to 8.50x (small)`."""
    if claim.along is not None:
        return range_text(claim.along)
    return times_text(claim.overall) if claim.ratio is not None else "an unknown time"


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _along(summary: Summary, groups: Sequence[Group], axis: Axis) -> str:
    """Whether the choice changes along models or environments, and the ratios that do."""
    of = model_of if axis == "model" else env_of
    values = dict.fromkeys(of(group.cells[0]) for group in groups if group.title in summary.cells)
    words = AXIS_WORDS[axis]
    if len(values) < 2:
        return f"On the {words}: not known, there is only {next(iter(values), 'none')}."
    names = short_names([summary.reference, *(claim.subject for claim in summary.claims)])
    turn = next((turn for turn in summary.turns if turn.axis == axis), None)
    kept = "the choice is the same throughout" if turn is None else _turn_text(turn, names).partition(": ")[2][:-1]
    unlike = []
    for claim in summary.claims:
        rows = {row.name: row for row in claim.cells if row.name in summary.cells}
        if found := axis_range(rows, groups, axis):
            times = ratios_along(found, rows, groups)
            unlike.append(f"{names[claim.variant]} takes {times} as long as {names[claim.reference]}")
    return f"On the {words}: {kept}; {_listed(unlike) if unlike else 'no ratio changes along it'}."


def ratios_along(found: Range, rows: Mapping[str, Comparison], groups: Sequence[Group]) -> str:
    """`1.30x (large) to 8.50x (small)`; where they differ at one value, `1.50x (large) and 2.77x to 7.91x (small)`."""
    inside: dict[str, list[Comparison]] = {}
    for group in groups:
        if group.title in rows:
            inside.setdefault(AXES[found.axis](group), []).append(rows[group.title])
    unlike = {value for value, part in inside.items() if stats.differ([x.estimate for x in part if x.estimate])}
    if not unlike:
        return range_text(found)
    texts = []
    for point in found.points:
        ends = [point.comparison]
        if point.value in unlike:
            part = sorted(inside[point.value], key=lambda row: row.ratio or 0.0)
            ends = [part[0], part[-1]]
        texts.append(f"{' to '.join(map(times_text, ends))} ({point.value})")
    return _listed(texts)


def _length(source: Source, summary: Summary, groups: Sequence[Group]) -> tuple[str, ...]:
    """How long training must be for the start of the chosen one to have paid."""
    if summary.choice is None:
        return ()
    chosen = summary.choice.best[0]
    having = [group for group in groups if group.cell(chosen.variant)]
    starts = [c for c in claims_of(source.parity, having, "cold_start", chosen.variant) if not c.subject.twin]
    sooner = [c for c in starts if c.verdict is stats.Verdict.FASTER and not c.few]
    if not sooner:
        return (f"Hardly on the length of training: nobody was shown to start sooner than {variant_name(chosen)}.",)
    first = min(sooner, key=lambda c: c.along.lowest.comparison.ratio or 1.0 if c.along else c.ratio or 1.0)
    return (_overtaking(having, chosen, first.subject),)


def _overtaking(groups: Sequence[Group], chosen: Cell, soonest: Cell) -> str:
    """When the chosen one overtakes the one that starts soonest."""
    sooner = f"On the length of training: {variant_name(soonest)} starts sooner"
    known = overtaking(groups, chosen.variant, soonest.variant)
    if not known:
        return f"{sooner}, and when {variant_name(chosen)} overtakes it is not known."
    least, most = min(known), max(known)
    span = f"{_steps(least)} to {_steps(most)}" if most > 1.05 * least else _steps(most)
    after = f"after {span} environment steps ({len(known)} cell{'s' if len(known) > 1 else ''})"
    return f"{sooner} and is done first in short trainings; {variant_name(chosen)} overtakes it {after}."


def _steps(count: float) -> str:
    """`1.2 million`, `45 thousand`."""
    if count >= 1e6:
        return f"{count / 1e6:.3g} million"
    return f"{count / 1e3:.3g} thousand" if count >= 1e3 else f"{count:.0f}"
