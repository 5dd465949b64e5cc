"""Claims over machines in sentences: the same on the page and in the terminal."""

from collections.abc import Iterator, Sequence

from benchback.analysis.claims import ALL
from benchback.analysis.machines import Fleet, FleetClaim
from benchback.analysis.wording import comparison_text, ratio_text, variant_name
from benchback.stats import NoVerdict, RandomEffects, Verdict
from benchback.stats.verdicts import ALPHA

FEW_MACHINES = 3
"""With fewer the interval over machines is so wide that it says little."""


def paragraphs(fleet: Fleet, claims: Sequence[FleetClaim]) -> list[str]:
    """The machines, what is said of each variant per iteration over all cells, and which machines are left out."""
    listed = "; ".join(machine.name for machine in fleet.machines)
    first = [f"{len(fleet.machines)} machines: {listed}."]
    shown = [x for x in claims if x.claim.metric == "steady" and (x.claim.env, x.claim.model) == (ALL, ALL)]
    texts = [" ".join(sentences(claim)) for claim in shown]
    if not texts:
        texts = ["They have no cell in common with two complete blocks of two variants: nothing is summed up."]
    return first + texts + [f"Not summed up, {name}: {why}." for name, why in fleet.left_out.items()]


def sentences(found: FleetClaim) -> Iterator[str]:
    """Each machine's ratio, the one over machines, and whether machines differ."""
    claim = found.claim
    own = "; ".join(f"{comparison_text(x.overall, x.along)} on {_place(name)}" for name, x in found.claims.items())
    yield f"{variant_name(claim.subject)} against {variant_name(claim.rival)}, per iteration: {own}."
    row = found.overall
    if row.ratio is None or found.effects is None:
        unlike = row.reason is NoVerdict.DIFFERS
        yield (
            "No one number stands for all its cells, so none is given over machines; its parts are in the table."
            if unlike
            else "Not every machine has a ratio, so none is given over machines."
        )
        return
    word = f", {row.verdict}" if row.verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.EQUIVALENT) else ""
    few = "; so few machines say little about others" if row.n < FEW_MACHINES else ""
    yield f"Over {row.n} machines {ratio_text(row.ratio, row.low, row.high)}{word}{few}."
    yield spread_text(found.effects)


def spread_text(effects: RandomEffects) -> str:
    """Whether machines differ by more than the error of each."""
    test = f"Q {effects.q:.3g}, p {effects.p:.2g}, I² {effects.i_squared:.0%}"
    if effects.p >= ALPHA:
        return f"The machines are not shown to differ ({test})."
    return f"The machines differ: the standard deviation between them is {effects.between:.1%} ({test})."


def _place(name: str) -> str:
    """`stratum 1` of the whole name of a machine."""
    return name.partition(": ")[0]
