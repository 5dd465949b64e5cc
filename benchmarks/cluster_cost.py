"""What the scheduler of a cluster costs: seconds in which a station has no block while there are more to run.

`python benchmarks/cluster_cost.py STORE...` reads stores of `benchback run STUDY --on ray:...`. From one block of a
station to the next, the time that the station itself did not take is the scheduler's: Ray's way there and back, the
driver's decisions and the transactions of the store.
"""

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import median

from benchback.measure.store import open_store


def costs(path: Path) -> Iterator[tuple[str, float, float]]:
    """Station, seconds of a block on it, and seconds from its beginning to the next one's that are not of the block."""
    placed: dict[str, datetime] = {}
    busy_s: dict[str, float] = {}
    with open_store(path, readonly=True) as store:
        for event in store.events():
            if event.kind == "returned":
                busy_s[event.detail["station"]] = event.detail["busy_s"]
            elif event.kind == "placed":
                station, at = event.detail["station"], datetime.fromisoformat(event.at)
                if station in placed and station in busy_s:
                    block_s = busy_s.pop(station)
                    yield station, block_s, (at - placed[station]).total_seconds() - block_s
                placed[station] = at


def main() -> None:
    for name in sys.argv[1:]:
        found = list(costs(Path(name)))
        if not found:
            print(f"{name}: no station ran two blocks one after another")
            continue
        share = sum(cost for _, _, cost in found) / sum(block for _, block, _ in found)
        print(
            f"{name}: {len({station for station, *_ in found})} stations, {len(found)} blocks of "
            f"{median(block for _, block, _ in found):.1f} s; the scheduler's part is "
            f"{median(cost for *_, cost in found):.3f} s of a block (median; largest "
            f"{max(cost for *_, cost in found):.3f} s), {share:.2%} in all"
        )


if __name__ == "__main__":
    main()
