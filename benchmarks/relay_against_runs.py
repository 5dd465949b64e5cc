"""Relays against whole runs: the same ratios within their intervals, and the same total time within 3 %.

    python benchmarks/relay_against_runs.py

Runs a small study twice, as relays and as whole runs, in stores of its own that can be continued, and prints a table.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

from benchback import stats
from benchback.analysis.claims import claims_of
from benchback.analysis.reader import read
from benchback.analysis.wording import comparison_text
from benchback.measure import coordinator, study

VARIANTS = ("linen", "purejax", "pytorch")
BLOCKS = 5
MOST_OFF = 0.03


def main() -> None:
    full = study.load("smoke")
    kept = [entry.index for entry in full.entries if entry.cell.run["backend"] in VARIANTS]
    chosen = replace(full, only=tuple(kept), min_blocks=BLOCKS, max_blocks=BLOCKS, keep_caches=False)
    sources = {}
    for protocol in ("relay", "runs"):
        path = Path(f"runs/against_{protocol}.sqlite")
        hooks = coordinator.Hooks(log=lambda line: print(line, file=sys.stderr))
        part = replace(chosen, protocol=protocol, rerun_noisy=False)
        with coordinator.open_campaign(path, part) as store:
            coordinator.work(store, part, replace(hooks, prove=None))
            source = read(store)
            sources[protocol] = replace(source, parity={cell.proof: "pass" for cell in source.cells.values()})
    print("| | relay | whole runs | |\n|---|---|---|---|")
    found = {name: claims_of(source.parity, source.groups, "steady") for name, source in sources.items()}
    for a, b in zip(found["relay"], found["runs"], strict=True):
        ratios = [comparison_text(claim.overall) for claim in (a, b)]
        agree = overlap(a.overall, b.overall)
        print(f"| {a.variant} against {a.reference}, steady | {' | '.join(ratios)} | {'agree' if agree else '?'} |")
    for cell in sources["relay"].cells.values():
        totals = [stats.geometric_mean(totals_of(source, cell.variant)) for source in sources.values()]
        off = totals[0] / totals[1] - 1
        verdict = "within 3 %" if abs(off) <= MOST_OFF else "off"
        print(f"| {cell.variant}, seconds in total | {totals[0]:.1f} | {totals[1]:.1f} | {off:+.1%}, {verdict} |")


def overlap(a: stats.Comparison, b: stats.Comparison) -> bool:
    """Whether two intervals have a ratio in common."""
    lows, highs = [x.low or math.inf for x in (a, b)], [x.high or 0.0 for x in (a, b)]
    return max(lows) <= min(highs)


def totals_of(source, variant: str) -> list[float]:
    values = [run.outcome.metrics["total"] for run in source.runs if run.cell.variant == variant]
    return [x for x in values if isinstance(x, float)]


if __name__ == "__main__":
    main()
