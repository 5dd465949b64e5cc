"""Relays against whole runs: the same ratios within their intervals, and the same total time within 3 %.

    python benchmarks/relay_against_runs.py

Runs a small study twice, as relays and as whole runs, in stores of its own that can be continued, and prints a table.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchback import stats
from benchback.analysis.reader import read
from benchback.analysis.source import SlotRun, Source
from benchback.analysis.wording import ratio_text
from benchback.measure import coordinator, study

REFERENCE, *OTHERS = VARIANTS = ("linen", "purejax", "pytorch")
BLOCKS = 5
MOST_OFF = 0.03
WARM_UP = 3
"""Calls at the beginning of a whole run that are not counted."""


def main() -> None:
    full = study.load("smoke")
    kept = [entry.index for entry in full.entries if entry.cell.run["backend"] in VARIANTS]
    chosen = replace(full, only=tuple(kept), min_blocks=BLOCKS, max_blocks=BLOCKS, keep_caches=False, budget_s=None)
    sources = {}
    for protocol in ("relay", "runs"):
        path = Path(f"runs/against_{protocol}.sqlite")
        hooks = coordinator.Hooks(log=lambda line: print(line, file=sys.stderr), prove=None)
        part = replace(chosen, protocol=protocol, rerun_noisy=False)
        with coordinator.open_campaign(path, part) as store:
            coordinator.work(store, part, hooks)
            sources[protocol] = read(store)
    print("| | relay | whole runs | |\n|---|---|---|---|")
    for name in OTHERS:
        a, b = (ratio_of(source, name) for source in sources.values())
        agree = max(a[1], b[1]) <= min(a[2], b[2])
        texts = " | ".join(ratio_text(*found) for found in (a, b))
        print(f"| {name} against {REFERENCE}, an iteration | {texts} | {'agree' if agree else 'apart'} |")
    for name in VARIANTS:
        totals = [stats.geometric_mean(totals_of(source, name)) for source in sources.values()]
        off = totals[0] / totals[1] - 1
        verdict = "within 3 %" if abs(off) <= MOST_OFF else "off"
        print(f"| {name}, seconds in total | {totals[0]:.1f} | {totals[1]:.1f} | {off:+.1%}, {verdict} |")


def ratio_of(source: Source, name: str) -> tuple[float, float, float]:
    """How many times as long as the reference's an iteration takes, with the 95 % interval of the paired t."""
    pairs = zip(runs_of(source, name), runs_of(source, REFERENCE), strict=True)
    found = stats.estimate([math.log(block_ratio(a, b)) for a, b in pairs])
    return math.exp(found.mean), *stats.interval(found)


def block_ratio(a: SlotRun, b: SlotRun) -> float:
    """Of a relay, the median of its rounds. Of two whole runs, the ratio of their median calls.

    A level that changes in the middle of a whole run is no reason to leave the run out here.
    """
    turns = [run.outcome.turns["steady"] for run in (a, b)]
    found = stats.relay_ratio(*turns) if all(turns) else median_call_s(a) / median_call_s(b)
    assert isinstance(found, float), found
    return found


def median_call_s(run: SlotRun) -> float:
    assert run.sampled is not None
    return float(np.median(run.sampled.seconds[WARM_UP:]))


def runs_of(source: Source, name: str) -> list[SlotRun]:
    """The runs of a backend, block by block."""
    return sorted((x for x in source.runs if x.cell.run["backend"] == name), key=lambda run: run.slot.block)


def totals_of(source: Source, name: str) -> list[float]:
    values = [run.outcome.metrics["total"] for run in runs_of(source, name)]
    return [x for x in values if isinstance(x, float)]


if __name__ == "__main__":
    main()
