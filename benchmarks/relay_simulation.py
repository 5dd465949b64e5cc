"""How often campaigns of relays are right, on simulated machines that drift, lose turns to others, or both.

    python benchmarks/relay_simulation.py [--campaigns 2000] [--rounds 54]

Prints a table for docs/relay.md: false positives of the paired t over relays where there is no difference, coverage of
its 95 % interval and how often it finds a difference of 5 %, and false positives if rounds were taken as replicates.
Exit code 1 if false positives are not 3-7 %, or coverage is not 93-97 %, anywhere.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from relay_model import MACHINES, PAIRS, ROUNDS, log_ratios, pooled_wrong, rates

RELAYS = (3, 5, 10)
EFFECT = 0.05
HEAD = (
    "| machine | relays | false positives | coverage | 5 % found | half width | not steady | rounds as replicates |\n"
    "|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="false positives, coverage and power of relays, simulated")
    parser.add_argument("--campaigns", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    size = {"campaigns": -(-options.campaigns // len(PAIRS)), "rounds": options.rounds}
    print(HEAD)
    wrong = 0
    for name, noise in MACHINES.items():
        for relays in RELAYS:
            equal, other = (log_ratios(noise, relays, seed=seed, **size) for seed in (0, 1))
            alarms, found = rates(equal), rates(other, EFFECT)
            wrong += not 0.03 <= alarms.wrong <= 0.07 or not 0.03 <= found.wrong <= 0.07
            values = (alarms.wrong, 1 - found.wrong, found.found, found.half_width, alarms.lost, pooled_wrong(equal))
            cells = [f"{100 * x:.{digits}f} %" for x, digits in zip(values, (1, 1, 0, 2, 2, 0), strict=True)]
            print(f"| {name} | {relays} | {' | '.join(cells)} |", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
