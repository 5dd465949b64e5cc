"""How often a ratio over machines is right, on simulated machines that differ, and of which some are noisier.

    python benchmarks/machines_simulation.py [--campaigns 5000]

Prints a table for docs/cluster.md: coverage of the 95 % interval over machines, how often the test calls them
different, and the coverage that weights by estimated errors would have. Exit code 1 if coverage is not 93-97 %, or
equal machines are called different in more than 7 %, anywhere.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from machines_model import Fleet, campaigns, covered_when_weighted, rates

MACHINES = (2, 3, 5, 10, 20)
BETWEEN = (0.0, 0.005, 0.03)
NOISIER = (1.0, 2.0)
HEAD = (
    "| machines | differ by (sd) | every second noisier by | coverage | half width | called different "
    "| coverage, weighted |\n|---|---|---|---|---|---|---|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="coverage of ratios over machines, simulated")
    parser.add_argument("--campaigns", type=int, default=5000)
    count = parser.parse_args().campaigns
    print(HEAD)
    wrong = 0
    for machines in MACHINES:
        for between in BETWEEN:
            for noisier in NOISIER:
                found = campaigns(Fleet(machines, between, noisier), count)
                ours, weighted = rates(found), covered_when_weighted(found)
                wrong += not 0.93 <= ours.covered <= 0.97 or (not between and ours.differing > 0.07)
                shown = f"{ours.covered:.1%} | {ours.half_width:.2%} | {ours.differing:.1%} | {weighted:.1%}"
                cells = f"{machines} | {between:.1%} | {noisier:g} | {shown}".replace("%", " %")
                print(f"| {cells} |", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
