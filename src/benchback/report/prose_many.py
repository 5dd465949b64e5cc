"""Many agents in sentences, made of typed claims: the same on the page and in the terminal."""

from collections.abc import Iterator

from benchback.analysis.advice_wording import count_text, seconds_text
from benchback.analysis.many import Size, SizeClaim, Work, steps_of, works
from benchback.analysis.source import Source
from benchback.analysis.wording import backend_name, even_text, ratio_text, reason_text
from benchback.measure.record import Cell
from benchback.stats import Verdict


def paragraphs(source: Source) -> list[str]:
    """What is said of each work that was measured with several agents."""
    return [" ".join(sentences(work)) for work in works(source)]


def sentences(work: Work) -> Iterator[str]:
    """What an agent costs at best, what the most agents take in all, and from how many on one program pays."""
    yield _cheapest(work)
    yield from _most(work)
    yield from _even(work)


def _cheapest(work: Work) -> str:
    """The number of agents at which each costs least, against one alone."""
    curve = work.best
    best, name = curve.best, backend_name(curve.cell.run["backend"])
    known = next((claim for claim in work.claims if claim.size.cell.id == best.cell.id), None)
    rate = f"{count_text(best.steps_per_s)} agent steps/s"
    if best.agents == 1:
        return f"No number of agents in one program makes an agent cheaper than one alone: {name}, {rate}."
    each = f"{1e3 * best.each_s:.3g} ms per agent and iteration, {rate}"
    return f"An agent costs least in {name} with {best.agents:,} of them in one program ({each}){_against(known)}."


def _against(known: SizeClaim | None) -> str:
    if known is None:
        return "; one agent alone was not measured"
    row = known.overall
    if row.ratio is None:
        return f"; against one alone: {reason_text(row)}"
    shown = "" if row.verdict is Verdict.FASTER else ", which is not shown to be less"
    return f": {ratio_text(row.ratio, row.low, row.high)} as long as one alone{shown}"


def _most(work: Work) -> Iterator[str]:
    """The whole training of the most agents, and of as many trainings of one agent."""
    sizes = [size for curve in work.curves for size in curve.several if size.total_s is not None]
    fastest = work.fastest_alone
    if not sizes or fastest is None:
        return
    most = max(size.agents for size in sizes)
    first = min((size for size in sizes if size.agents == most), key=lambda size: size.total_s or 0.0)
    steps = count_text(steps_of(first.cell) * first.cell.run["num_iterations"])
    alone = fastest.total_s or 0.0
    beside = -(-most // work.processors) * alone
    ideal = (
        f", side by side on {work.processors} processors {seconds_text(beside)} at best" if work.processors > 1 else ""
    )
    yield (
        f"{most:,} agents of {steps} steps each take {seconds_text(first.total_s or 0.0)} in one program of "
        f"{_name(first)}, start and compilation included; one after another {seconds_text(most * alone)}{ideal} "
        f"(of {_name(fastest)}, the fastest alone)."
    )


def _even(work: Work) -> Iterator[str]:
    """From how many agents on one program of the best variant is done first, against the notable ones alone."""
    subject, fastest = work.best.cell, work.fastest_alone
    single = {curve.cell.variant for curve in work.curves if not curve.several}
    wanted = single | ({fastest.cell.variant} if fastest else set())
    for claim in work.even:
        if claim.subject.variant == subject.variant and claim.rival.variant in wanted:
            beside = f"; against {work.processors} at once, {even_text(claim.beside)}" if work.processors > 1 else ""
            own = claim.rival.variant == subject.variant
            others = "as many of one agent each" if own else f"as many trainings of {_named(claim.rival)}"
            first = f"One program of {_named(subject)} is done before {others}"
            yield f"{first}, one after another, {even_text(claim.after)}{beside}."


def _name(size: Size) -> str:
    return _named(size.cell)


def _named(cell: Cell) -> str:
    return backend_name(cell.run["backend"])
