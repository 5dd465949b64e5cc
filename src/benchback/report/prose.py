"""The verdict in sentences: who is faster by how much, what to use, and what that depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from statistics import geometric_mean
from typing import Literal

from benchback import stats
from benchback.analysis.claims import ALL, Claim
from benchback.analysis.groups import Setting, reference_variant
from benchback.analysis.progress import overtaking
from benchback.analysis.source import Source
from benchback.analysis.wording import ratio_text, remarks_text, setting_text
from benchback.measure.record import Cell
from benchback.registry import BACKENDS
from benchback.stats import MARGIN

MATTERS = 1.1
"""A ratio that changes by this factor between cells is worth a sentence."""


@dataclass(frozen=True)
class Said:
    """What one setting says, a sentence each."""

    setting: str
    comparisons: tuple[str, ...]
    depends: tuple[str, ...] = ()
    chosen: Cell | None = None
    """A cell of the variant to use."""
    why: str = "No recommendation: nothing can be compared."
    near: tuple[str, ...] = ()
    """Variants that no verdict tells from the chosen one."""


@dataclass(frozen=True)
class Verdict:
    """What the campaign says: a recommendation, and the sentences of every setting."""

    recommendation: str
    settings: tuple[Said, ...]


def name_of(cell: Cell) -> str:
    """`Flax NNX (split)` of `nnx/split/phase`; other units and suites are said."""
    backend, mode = cell.run["backend"], cell.run["mode"]
    extra = "" if cell.unit == "phase" else f", unit {cell.unit}"
    extra += f", {cell.other_suite} environments" if cell.other_suite else ""
    extra += "" if cell.gradients == "framework" else f", {cell.gradients} gradients"
    title = BACKENDS[backend].title if backend in BACKENDS else backend
    return f"{title} ({mode}{extra})"


def verdict(source: Source, claims: Sequence[Claim]) -> Verdict:
    """Every setting by itself; the recommendation is that of the first, and says where others differ."""
    found = tuple(_said(source, claims, setting) for setting in source.settings)
    text, chosen = found[0].why, found[0].chosen
    for other in found[1:]:
        if other.chosen is None:
            text += f" In {other.setting} nothing can be recommended."
        elif chosen is not None and chosen.variant in other.near:
            text += f" In {other.setting} the choice is the same."
        else:
            text += f" In {other.setting} it would be {name_of(other.chosen)}."
    return Verdict(text, found)


def _said(source: Source, claims: Sequence[Claim], setting: Setting) -> Said:
    title = setting_text(setting)
    claims = [claim for claim in claims if claim.setting == setting and not claim.subject.twin]
    if not claims:
        return Said(title, ("Nothing can be compared: no two variants did the same work.",))
    few = len({claim.variant for claim in claims} - source.main)
    claims = [claim for claim in claims if claim.variant in source.main]
    whole = [claim for claim in claims if claim.env == claim.model == ALL]
    said = [sentence(claim) for claim in whole if claim.metric == "steady"]
    if few:
        said.append(f"{few} more variants were measured in few cells; choose modes above to see them in section 2.")
    # Ratios to another reference, in cells that lack the usual one, cannot be set beside the others.
    reference = reference_variant(source.settings[setting])
    claims, whole = ([claim for claim in part if claim.reference == reference] for part in (claims, whole))
    choice = choose(whole)
    if choice is None:
        why = "No recommendation: no variant has a steady state that can be compared."
        return Said(title, tuple(said), why=why)
    depends = (
        _along(claims, "model", source.models, choice),
        _along(claims, "env", sorted(source.envs, key=lambda env: source.complexity.get(env, 0.0)), choice),
        _length(source, setting, choice),
    )
    return Said(title, tuple(said), depends, choice.cells[choice.variant], recommendation(choice), choice.near)


def sentence(claim: Claim) -> str:
    """`Flax NNX (jit) is 1.02x [1.01, 1.03] slower than Flax Linen (jit) in steady state, 36 cells, 180 blocks.`"""
    mine, theirs, row = name_of(claim.subject), name_of(claim.rival), claim.overall
    remarks = remarks_text(row)
    if row.ratio is None:
        return f"{mine} cannot be compared with {theirs} in steady state: {remarks}."
    ratio, low, high = row.ratio, row.low, row.high
    if row.verdict is None or low is None or high is None:
        return f"{mine} takes {ratio:.3g}x the time of {theirs} in steady state, without a verdict: {remarks}."
    scope = f"{row.cells} cell{'s' if row.cells != 1 else ''}, {row.n} blocks"
    scope += f" ({remarks})" if remarks else ""
    match row.verdict:
        case stats.Verdict.FASTER:
            return (
                f"{mine} is {ratio_text(1 / ratio, 1 / high, 1 / low)} faster than {theirs} in steady state, {scope}."
            )
        case stats.Verdict.SLOWER:
            return f"{mine} is {ratio_text(ratio, low, high)} slower than {theirs} in steady state, {scope}."
        case stats.Verdict.EQUIVALENT:
            within = f"within {MARGIN:.0%}: {ratio_text(ratio, low, high)}"
            return f"{mine} is equivalent to {theirs} in steady state, {within}, {scope}."
        case stats.Verdict.INCONCLUSIVE:
            unseen = f"; effects below {row.mde:.1%} could not be seen" if row.mde is not None else ""
            span = ratio_text(ratio, low, high)
            return f"{mine} cannot be told from {theirs} in steady state: {span}, {scope}{unseen}."


@dataclass(frozen=True)
class Choice:
    """The variant to use, of those that nothing was shown to be faster than."""

    variant: str
    near: tuple[str, ...]
    """Variants that no verdict tells from it, itself included."""
    steady: Mapping[str, float]
    """Ratios to the reference that were shown; 1 where none was."""
    cold: Mapping[str, float]
    cells: Mapping[str, Cell]
    """Variant -> one of its cells."""

    def name(self, variant: str) -> str:
        """The variant for people."""
        return name_of(self.cells[variant])


def choose(claims: Sequence[Claim]) -> Choice | None:
    """The fastest in steady state; of those as fast, or that no verdict tells from it, the one that starts fastest.

    All claims have the same reference, which can be chosen, too.
    """
    known = [claim for claim in claims if claim.verdict is not None]
    steady = {claim.variant: _settled(claim) for claim in known if claim.metric == "steady"}
    cold = {claim.variant: _settled(claim) for claim in known if claim.metric == "cold_start"}
    if not steady:
        return None
    cells = {claims[0].reference: claims[0].rival} | {claim.variant: claim.subject for claim in known}
    steady, cold = {claims[0].reference: 1.0} | steady, {claims[0].reference: 1.0} | cold
    best = min(steady.values())
    near = tuple(name for name, ratio in steady.items() if ratio <= best * (1 + MARGIN))
    chosen = min(near, key=lambda name: (cold.get(name, float("inf")), steady[name]))
    return Choice(chosen, near, steady, cold, cells)


def recommendation(choice: Choice) -> str:
    """`Use plain JAX (jit): ...`, with the reason and the gain."""
    others = [choice.name(variant) for variant in choice.near if variant != choice.variant]
    why = f"nothing was shown to be more than {MARGIN:.0%} faster per iteration"
    if others:
        why += f", and of those not told from it ({', '.join(others)}) none was shown to start sooner"
    slowest = max(choice.steady, key=lambda name: choice.steady[name])
    gain = choice.steady[slowest] / choice.steady[choice.variant]
    against = f" Against {choice.name(slowest)} it gains {gain:.2g}x per iteration." if gain > 1 + MARGIN else ""
    return (
        f"Use {choice.name(choice.variant)}: {why}.{against} Parity is proven for what is compared; ease of use is in "
        "section 10."
    )


def _settled(claim: Claim) -> float:
    """The ratio where it was shown to differ from 1; a difference that was not shown must not decide."""
    shown = claim.verdict in (stats.Verdict.FASTER, stats.Verdict.SLOWER)
    return claim.ratio if shown and claim.ratio is not None else 1.0


Axis = Literal["env", "model"]


def _along(claims: Sequence[Claim], axis: Axis, order: Sequence[str], overall: Choice) -> str:
    """Where the choice changes along models or environments, and where a ratio changes most."""
    other = "env" if axis == "model" else "model"
    part = [claim for claim in claims if getattr(claim, other) == ALL != getattr(claim, axis)]
    present = {getattr(claim, axis) for claim in part}
    names = [name for name in order if name in present]
    words = {"model": "model size", "env": "cost of the environment"}[axis]
    if len(names) < 2:
        return f"On the {words}: not known, there is only {names[0] if names else 'one'}."
    different = []
    for name in names:
        here = choose([claim for claim in part if getattr(claim, axis) == name])
        if here is not None and overall.variant not in here.near:
            different.append(f"{here.name(here.variant)} with {name}")
    kept = "the choice is the same throughout" if not different else f"rather use {' and '.join(different)}"
    return f"On the {words}: {kept}; {_widest(claims, axis, names)}."


def _widest(claims: Sequence[Claim], axis: Axis, names: Sequence[str]) -> str:
    """The ratio that changes most along an axis, between two values of it that were measured with the same others.

    Over all others it could change only because cells were left out: large models here, small ones there.
    """
    other = "env" if axis == "model" else "model"
    cells: dict[str, list[Claim]] = {}
    for claim in claims:
        if claim.metric == "steady" and claim.ratio is not None and ALL not in (claim.env, claim.model):
            cells.setdefault(claim.variant, []).append(claim)
    widest, text = MATTERS, f"no ratio changes by more than {MATTERS - 1:.0%} along it"
    for found in cells.values():
        ratios = {(getattr(claim, axis), getattr(claim, other)): claim.ratio or nan for claim in found}
        others = dict.fromkeys(getattr(claim, other) for claim in found)
        for pair in combinations(names, 2):
            common = [x for x in others if all((name, x) in ratios for name in pair)]
            if not common:
                continue
            means = {name: geometric_mean([ratios[name, x] for x in common]) for name in pair}
            low, high = sorted(pair, key=lambda name: means[name])
            if means[high] / means[low] > widest:
                widest = means[high] / means[low]
                text = f"{name_of(found[0].subject)} takes {means[high]:.3g}x the time of {name_of(found[0].rival)} "
                text += f"with {high} and {means[low]:.3g}x with {low} ({', '.join(common)})"
    return text


def _length(source: Source, setting: Setting, choice: Choice) -> str:
    """How long training must be for the start of the chosen one to have paid."""
    chosen = choice.name(choice.variant)
    soonest = min(choice.cold, key=lambda name: (choice.cold[name], name != choice.variant))
    if choice.cold[soonest] >= choice.cold.get(choice.variant, float("inf")):
        return f"Hardly on the length of training: nobody was shown to start sooner than {chosen}."
    known = overtaking(source.settings[setting], choice.variant, soonest)
    sooner = f"On the length of training: {choice.name(soonest)} starts sooner"
    if not known:
        return f"{sooner}, and when {chosen} overtakes it is not known."
    least, most = min(known), max(known)
    span = f"{_steps(least)} to {_steps(most)}" if most > 1.05 * least else _steps(most)
    cells = f"{len(known)} cell{'s' if len(known) > 1 else ''}"
    after = f"after {span} environment steps ({cells})"
    return f"{sooner} and is done first in short trainings; {chosen} overtakes it {after}."


def _steps(count: float) -> str:
    """`1.2 million`, `45 thousand`."""
    if count >= 1e6:
        return f"{count / 1e6:.3g} million"
    return f"{count / 1e3:.3g} thousand" if count >= 1e3 else f"{count:.0f}"
