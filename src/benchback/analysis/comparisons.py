"""From a store to claims: every variant against a reference, in every group that has both, block by block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchback import stats
from benchback.measure.metrics import FIGURES, figures
from benchback.measure.policy import accepted_attempt
from benchback.measure.record import Attempt, Cell
from benchback.measure.store import Store
from benchback.measure.verify import COMPARED, disagreements
from benchback.stats import Claim, Measured

Setting = tuple[str, str, str, int, str]
"""Algorithm, timing, device, threads, division: what is never pooled."""


@dataclass(frozen=True)
class Outcome:
    """One slot of the schedule as the report sees it."""

    block: int
    figures: Mapping[str, Measured]
    ledger: Mapping[str, object]
    """Empty where there is no result."""
    episode_return: float | None
    first_call_s: float | None = None
    """Of the call that compiles."""


@dataclass(frozen=True)
class Group:
    """Cells that do the same work, each with its outcomes by block."""

    title: str
    cells: tuple[Cell, ...]
    outcomes: Mapping[str, Mapping[int, Outcome]]
    """Cell id -> block -> outcome."""


def read_groups(store: Store, stratum: int | None = None) -> list[Group]:
    """The groups of a store, of its last stratum unless told otherwise; slots without a result say why."""
    stratum = len(store.strata()) - 1 if stratum is None else stratum
    cells = store.cells()
    tries: dict[str, list[Attempt]] = {}
    for attempt in store.attempts():
        tries.setdefault(attempt.slot, []).append(attempt)
    outcomes: dict[str, dict[int, Outcome]] = {id: {} for id in cells}
    for slot in store.slots():
        if slot.stratum == stratum:
            outcomes[slot.cell][slot.block] = outcome_of(slot.block, tries.get(slot.id, []))
    return grouped(cells, outcomes)


def grouped(cells: Mapping[str, Cell], outcomes: Mapping[str, Mapping[int, Outcome]]) -> list[Group]:
    """Cells that do the same work together, with the outcomes of each by block."""
    found: dict[str, list[Cell]] = {}
    for cell in cells.values():
        found.setdefault(cell.group, []).append(cell)
    titles = [title(members[0]) for members in found.values()]
    return [
        Group(
            name if titles.count(name) == 1 else f"{name}, {amount(members[0])}",
            tuple(members),
            {cell.id: outcomes[cell.id] for cell in members},
        )
        for name, members in zip(titles, found.values(), strict=True)
    ]


def outcome_of(block: int, attempts: Sequence[Attempt]) -> Outcome:
    """What a slot came to: the figures of the attempt that speaks for it, or the reason why there are none."""
    spoken = accepted_attempt(attempts)
    if spoken is None or spoken.record is None:
        last = attempts[-1] if attempts else None
        reason = f"{last.outcome}: {last.detail}" if last else "not run yet"
        return Outcome(block, dict.fromkeys(FIGURES, reason), {}, None)
    returns = [x for x in spoken.record.samples.get("episode_return", ()) if x is not None]
    return Outcome(
        block,
        figures(spoken.record),
        spoken.record.ledger,
        episode_return=returns[-1] if returns else None,
        first_call_s=spoken.record.samples["total_s"][0],
    )


def title(cell: Cell) -> str:
    """The work of a group, for people."""
    hidden = cell.run["hidden_sizes"]
    model = "x".join(map(str, hidden)) if hidden else cell.run["model"]
    threads = "" if cell.threads == 1 else f", {cell.threads} threads"
    return f"{cell.run['algorithm']} {cell.run['env']} {model}, {cell.timing}{threads}"


def amount(cell: Cell) -> str:
    """How much work it is; tells groups apart that are otherwise alike."""
    return f"{cell.run['num_envs']} x {cell.run['num_steps']} steps x {cell.run['num_iterations']} ({cell.group[:4]})"


def setting_of(cell: Cell) -> Setting:
    """What of a cell is never pooled with another."""
    return str(cell.run["algorithm"]), cell.timing, cell.device, cell.threads, cell.division


def setting_text(setting: Setting) -> str:
    """`ppo, async, cpu, 1 thread, matched`."""
    algorithm, timing, device, threads, division = setting
    return f"{algorithm}, {timing}, {device}, {threads} thread{'s' if threads > 1 else ''}, {division}"


def by_setting(groups: Sequence[Group]) -> dict[Setting, list[Group]]:
    """Groups by what is never pooled, in order of mention."""
    found: dict[Setting, list[Group]] = {}
    for group in groups:
        found.setdefault(setting_of(group.cells[0]), []).append(group)
    return found


def comparable(groups: Sequence[Group]) -> list[tuple[Setting, list[Group]]]:
    """Groups of one setting that have a reference in common; those that lack it have another."""
    found: list[tuple[Setting, list[Group]]] = []
    for setting, rest in by_setting(groups).items():
        while rest:
            reference = reference_variant(rest)
            having = [g for g in rest if any(cell.variant == reference for cell in g.cells)]
            found.append((setting, having))
            rest = [group for group in rest if group not in having]
    return found


def reference_variant(groups: Sequence[Group]) -> str:
    """Whom to compare with: the variant that most groups have, the first mentioned among equals."""
    names = [cell.variant for group in groups for cell in group.cells if not cell.twin]
    return max(dict.fromkeys(names), key=names.count)


def claims(store: Store, groups: Sequence[Group], figure: str, reference: str | None = None) -> list[Claim]:
    """Every other variant against the reference, in order of mention; the A/A pair is one of them."""
    return claims_under(parity_of(store), groups, figure, reference or reference_variant(groups))


def claims_under(verdicts: Mapping[str, str], groups: Sequence[Group], figure: str, reference: str) -> list[Claim]:
    """`claims`, given the verdicts of parity."""
    names = dict.fromkeys(cell.variant for group in groups for cell in group.cells)
    found = []
    for name in names:
        rival = name.removesuffix("'") if name.endswith("'") else reference
        if name == rival:
            continue
        cells = {}
        for group in groups:
            mine = next((c for c in group.cells if c.variant == name), None)
            theirs = next((c for c in group.cells if c.variant == rival), None)
            if mine and theirs:
                cells[group.title] = paired(group, mine, theirs, figure, verdicts)
        if cells:
            found.append(stats.claim(f"{name} : {rival}", cells))
    return found


def paired(
    group: Group, mine: Cell, theirs: Cell, figure: str, verdicts: Mapping[str, str]
) -> tuple[list[Measured], list[Measured]]:
    """The figure of two cells in the blocks that are planned for both; a text where they may not be compared."""
    a, b = group.outcomes[mine.id], group.outcomes[theirs.id]
    refused = unproven(mine, verdicts) or unproven(theirs, verdicts)
    numerator: list[Measured] = []
    for block in sorted(a.keys() & b.keys()):
        reason = refused or unequal(a[block], b[block])
        numerator.append(reason or a[block].figures[figure])
    return numerator, [b[block].figures[figure] for block in sorted(a.keys() & b.keys())]


def unproven(cell: Cell, verdicts: Mapping[str, str]) -> str:
    """Why no speed may be claimed for a cell's backend; empty where its parity was proven."""
    name = f"{cell.run['algorithm']}/{cell.run['backend']}"
    found = verdicts.get(name, "not measured")
    return "" if found == "pass" else f"parity of {name}: {found}"


def unequal(a: Outcome, b: Outcome) -> str:
    """What two runs did differently besides the compared axes; empty if nothing, or if one of them has no result."""
    if not a.ledger or not b.ledger:
        return ""
    fields = (a.ledger.keys() | b.ledger.keys()) - COMPARED
    if all(a.ledger.get(name) == b.ledger.get(name) for name in fields):
        return ""
    # Counts per call still have to be brought to the same length of a call.
    texts = disagreements({"a": a.ledger, "b": b.ledger})
    differing = [text.partition(" compared: ")[2].partition(" is ")[0] for text in texts]
    return f"ledgers differ in {', '.join(differing)}" if differing else ""


def parity_of(store: Store) -> dict[str, str]:
    """`algorithm/backend` -> verdict, as last recorded."""
    events = [event for event in store.events() if event.kind == "parity"]
    return events[-1].detail["verdicts"] if events else {}
