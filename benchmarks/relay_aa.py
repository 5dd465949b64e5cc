"""A/A relays for real: copies of one program must come out equal, on a quiet machine and beside a busy process.

    python benchmarks/relay_aa.py --relays 40
    python benchmarks/relay_aa.py --relays 20 --burn

Each relay starts fresh processes, in an order drawn anew as campaigns do, and gives one ratio per pair of copies.
Comparisons of five relays each are tested by the paired t at 5 %. Results are appended to a file, so that an
interrupted run goes on.
"""

import argparse
import json
import math
import random
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from benchback import stats
from benchback.measure import study
from benchback.measure.metrics import run_turns
from benchback.measure.record import Cell, Record
from benchback.measure.relay import Pace, Relay, relay_launch

COPIES = 3
AT_ONCE = 5
"""Relays of one comparison, the usual number of blocks."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relays", type=int, default=40)
    parser.add_argument("--burn", action="store_true", help="beside a process that keeps one processor busy")
    parser.add_argument("--relay-s", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=Path("runs/relay_aa.jsonl"))
    flags = parser.parse_args()
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    done = [row for row in rows(flags.out) if row["burn"] == flags.burn]
    with burning(flags.burn), relay_launch(keep_caches=True) as launch:
        for seed in range(len(done), flags.relays):
            cells = copies()
            started = random.Random(seed).sample(cells, len(cells))
            ended = launch(Relay(started, seed, 300.0, Pace(relay_s=flags.relay_s), lambda: True))
            turns = [run_turns(Record.from_dict(ended[x.id].messages[0]["record"]))["steady"] for x in cells]
            ratios = [stats.relay_ratio(a, b) for a, b in combinations(turns, 2)]
            found = {"burn": flags.burn, "ratios": ratios, "rounds": len(turns[0])}
            with flags.out.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"relay {seed + 1} of {flags.relays}: {', '.join(f'{x:.4f}' for x in ratios)}", file=sys.stderr)
            done.append(found)
    print(summary(done))


def copies() -> list[Cell]:
    """The same program several times: only the learning rate differs, by too little to matter."""
    (cell,) = [cell for cell in study.load("smoke").cells if cell.run["backend"] == "purejax"]
    rate = cell.run["learning_rate"]
    return [replace(cell, run={**cell.run, "learning_rate": rate * (1 + 1e-6 * i)}) for i in range(COPIES)]


def rows(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def burning(wanted: bool):
    """A process that keeps one processor busy while the context lasts."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()


def summary(done: list[dict]) -> str:
    """False alarms and half widths of comparisons of five relays."""
    alarms, widths = 0, []
    for pair in range(len(done[0]["ratios"])):
        logs = [math.log(row["ratios"][pair]) for row in done]
        for i in range(0, len(logs) - AT_ONCE + 1, AT_ONCE):
            found = stats.estimate(logs[i : i + AT_ONCE])
            low, high = stats.interval(found)
            alarms += not low <= 1 <= high
            widths.append(math.sqrt(high / low) - 1)
    widths.sort()
    off = sorted(abs(math.log(x)) for row in done for x in row["ratios"])
    return (
        f"{len(done)} relays: |log ratio| median {off[len(off) // 2]:.2%}, largest {off[-1]:.2%}; "
        f"{len(widths)} comparisons of {AT_ONCE}: {alarms} false alarms at 5 %, "
        f"half width median {widths[len(widths) // 2]:.2%}, largest {widths[-1]:.2%}"
    )


if __name__ == "__main__":
    main()
