"""How often the instrument sees a difference where there is none: real A/A campaigns, a verdict for each pair.

    python benchmarks/false_alarms.py [--pairs 20] [--blocks 6] [--out runs/false_alarms]

Every pair is a campaign of its own through the whole harness: one cell and its copy, in fresh processes, in the
protocol's order, gated and stored like any other; nothing is stopped early. Runs that the noise gate tags are kept and
counted, not repeated: whoever trusts the verdicts must trust them on this machine as it is. The work is small, so that
most of the time goes into starting processes. Run again with the same folder, it goes on where it stopped. Of 20 pairs
one false alarm is expected at 5 %; exit code 1 if there are more than two.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchback import stats
from benchback.cli.arguments import on_stop
from benchback.measure.coordinator import Hooks, open_campaign, work
from benchback.measure.metrics import ratio
from benchback.measure.results import block_times
from benchback.measure.study import Product, Study
from benchback.stats import Comparison

MOST_ALARMS = 2
WORK = {
    "pytorch": {"env": "torch/CartPole-v1", "mode": "none"},
    "purejax": {"env": "gymnax/CartPole-v1", "mode": "jit"},
}
"""How each backend does it with the shortest start."""
SIZE = {"hidden_sizes": [16], "num_envs": 4, "num_steps": 16, "num_epochs": 1, "num_minibatches": 2}


def pair(number: int, backend: str, blocks: int) -> Study:
    """One cell with its copy; pairs differ in a number that costs nothing."""
    fixed = {**SIZE, **WORK[backend], "backend": backend, "num_iterations": 60}
    axes = {"gamma": [0.99 - number / 1000]}
    options = {"min_blocks": blocks, "max_blocks": blocks, "rerun_noisy": False, "timeout_s": 300.0}
    return Study(name=f"aa{number:02}", products=(Product(axes=axes, fixed=fixed),), **options)


def measured(path: Path, number: int, backend: str, blocks: int, hooks: Hooks) -> tuple[Comparison, int] | None:
    """What came of one pair, and how many of its runs were noisy; None if the user asked to stop."""
    study = pair(number, backend, blocks)
    with open_campaign(path, study, seed=number) as store:
        if not work(store, study, hooks):
            return None
        cells = list(store.cells().values())
        noisy = sum("noisy" in attempt.tags for attempt in store.attempts())
        times = block_times(store, 0)
    copy, original = (times[next(cell.id for cell in cells if cell.twin is twin)] for twin in (True, False))
    ratios = [ratio(copy[block], original[block]) for block in copy.keys() & original.keys()]
    found = [x for x in ratios if x is not None]
    return stats.compare(study.name, found, [1.0] * len(found)), noisy


def alarms(found: list[Comparison]) -> int:
    """Pairs whose interval leaves out 1: nothing is allowed for having looked at many."""
    return sum(not row.low <= 1.0 <= row.high for row in found if row.low is not None and row.high is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description="false alarms in real A/A campaigns")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--backend", choices=WORK, default="pytorch")
    parser.add_argument("--out", type=Path, default=Path("runs/false_alarms"))
    options = parser.parse_args()
    hooks = replace(Hooks(), asked_to_stop=on_stop())
    found: list[Comparison] = []
    for number in range(options.pairs):
        path = options.out / f"{options.backend}-{number:02}.sqlite"
        outcome = measured(path, number, options.backend, options.blocks, hooks)
        if outcome is None:
            sys.exit(130)
        row, noisy = outcome
        found.append(row)
        shown = f"{row.ratio:.4f} [{row.low:.4f}, {row.high:.4f}] over {row.n} blocks, {noisy} runs noisy"
        print(f"{row.name}: {row.verdict}: {shown}", flush=True)
    count = alarms(found)
    print(f"{count} false alarms in {len(found)} pairs; at most {MOST_ALARMS} are allowed")
    sys.exit(1 if count > MOST_ALARMS else 0)


if __name__ == "__main__":
    main()
