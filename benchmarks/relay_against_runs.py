"""Relays against whole runs: the same ratios within their intervals, and the same total time within 3 %.

    python benchmarks/relay_against_runs.py [--blocks 5]

Every block is a relay of three backends and a whole training of each, all in fresh processes with empty caches; every
other block begins with the trainings. So what the machine does for minutes affects both. Trainings are long enough that
their start, which differs by a second from process to process, does not decide. Blocks are appended to a file, so that
an interrupted run goes on.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchback import stats
from benchback.analysis.wording import ratio_text
from benchback.measure import study
from benchback.measure.metrics import run_metrics, run_turns
from benchback.measure.process import Ended, run_cell
from benchback.measure.record import Cell, Record
from benchback.measure.relay import Pace, Relay, run_relay

ITERATIONS = {"linen": 6000, "purejax": 6000, "pytorch": 1000}
"""Of a whole training: half a minute."""
REFERENCE = "linen"
MOST_OFF = 0.03
WARM_UP = 3
"""Calls at the beginning of a whole run that are not counted."""
LIMIT_S = 600.0

Block = Mapping[str, Mapping[str, float]]
"""Backend -> its numbers in one block: ratios to the reference and seconds, of the relay and of whole runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--relay-s", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path("runs/relay_against_runs.jsonl"))
    flags = parser.parse_args()
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in flags.out.read_text().splitlines()] if flags.out.exists() else []
    for number in range(len(done), flags.blocks):
        found = run_block(cells(), number, flags.relay_s)
        with flags.out.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"block {number + 1} of {flags.blocks}: {json.dumps(found)}", file=sys.stderr, flush=True)
        done.append(found)
    print("\n".join(table(done)))


def cells() -> dict[str, Cell]:
    """The demo's program in each backend, as long as a whole training."""
    found = {str(cell.run["backend"]): cell for cell in study.load("smoke").cells}
    return {
        name: replace(found[name], run={**found[name].run, "num_iterations": iterations})
        for name, iterations in ITERATIONS.items()
    }


def run_block(cells: Mapping[str, Cell], seed: int, relay_s: float) -> Block:
    """A relay and a whole training of each, the relay first in every other block, the backends in rotated order."""
    order = [*cells][seed % len(cells) :] + [*cells][: seed % len(cells)]

    def as_relay() -> dict[str, Record]:
        given = Relay([cells[name] for name in order], seed, LIMIT_S, Pace(relay_s=relay_s), lambda: True)
        ended = run_relay(given)
        failed = [x.detail for x in ended.values() if x.outcome != "ok"]
        assert not failed, failed
        return {name: record_of(ended[cells[name].id]) for name in order}

    def as_runs() -> dict[str, Record]:
        return {name: record_of(run_cell(cells[name], seed, LIMIT_S, lambda: True)) for name in order}

    steps: list[Callable[[], dict[str, Record]]] = [as_relay, as_runs]
    first, second = (step() for step in (steps if seed % 2 == 0 else steps[::-1]))
    relay, runs = (first, second) if seed % 2 == 0 else (second, first)
    return {name: numbers(relay[name], runs[name], relay[REFERENCE], runs[REFERENCE]) for name in cells}


def record_of(ended: Ended) -> Record:
    assert ended.outcome == "ok", ended.detail
    return Record.from_dict(ended.messages[0]["record"])


def numbers(relay: Record, run: Record, relay_reference: Record, run_reference: Record) -> dict[str, float]:
    """What a block says of one backend."""
    ratio = stats.relay_ratio(run_turns(relay)["steady"], run_turns(relay_reference)["steady"])
    predicted, measured = run_metrics(relay), run_metrics(run)
    found = {
        "relay_ratio": ratio,
        "runs_ratio": median_call_s(run) / median_call_s(run_reference),
        **{f"relay_{name}_s": predicted[name] for name in ("cold_start", "total")},
        **{f"runs_{name}_s": measured[name] for name in ("cold_start", "total")},
    }
    return {name: value for name, value in found.items() if isinstance(value, float)}


def median_call_s(record: Record) -> float:
    """Of a whole run; a level that changes in its middle is no reason to leave the run out here."""
    return float(np.median([x for x in record.samples["total_s"][WARM_UP:] if x is not None]))


def table(done: Sequence[Block]) -> list[str]:
    """Ratios and totals by both protocols, with 95 % intervals over blocks (paired t).

    A relay whose rounds drifted has no ratio: its block does not count for that one.
    """
    lines = ["| | relay | whole runs | |", "|---|---|---|---|"]
    for name in (x for x in ITERATIONS if x != REFERENCE):
        both = [block[name] for block in done if "relay_ratio" in block[name]]
        a, b = (estimated([numbers[f"{how}_ratio"] for numbers in both]) for how in ("relay", "runs"))
        agree = "agree" if max(a[1], b[1]) <= min(a[2], b[2]) else "apart"
        texts = " | ".join(ratio_text(*found) for found in (a, b))
        lines.append(f"| {name} against {REFERENCE}, an iteration, {len(both)} blocks | {texts} | {agree} |")
    for part, words in (("cold_start", "seconds of the start"), ("total", "seconds of {} iterations")):
        for name in ITERATIONS:
            relay, runs = ([block[name][f"{how}_{part}_s"] for block in done] for how in ("relay", "runs"))
            off, low, high = (x - 1 for x in estimated([a / b for a, b in zip(relay, runs, strict=True)]))
            means = " | ".join(f"{stats.geometric_mean(x):.1f}" for x in (relay, runs))
            said = f"{off:+.1%} [{low:+.1%}, {high:+.1%}]"
            within = f", {'within' if abs(off) <= MOST_OFF else 'not within'} 3 %" if part == "total" else ""
            lines.append(f"| {name}, {words.format(ITERATIONS[name])} | {means} | {said}{within} |")
    return lines


def estimated(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of the blocks' ratios, and its interval."""
    found = stats.estimate([math.log(x) for x in ratios])
    return math.exp(found.mean), *stats.interval(found)


if __name__ == "__main__":
    main()
