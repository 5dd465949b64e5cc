"""How long a report of a large campaign takes: 500 runs of 1000 iterations, never run but plausible.

    python benchmarks/report_speed.py [--runs 500] [--iterations 1000] [--store FILE] [--seconds 15] [--megabytes 6]

Builds the store (or takes the one at FILE), makes its report in a process of its own as a user would, and prints the
seconds of the wall clock, those of the processor, and the size of the page. Exit code 1 above a limit.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from synthetic import Shape, build

CELLS = 97
"""Of the shape below: six backends, three models and four environments async, the smallest model sync, and A/A."""


def store_of(path: Path, runs: int, iterations: int) -> Path:
    """A store with at least so many runs, unless there is one."""
    if not path.exists():
        shape = Shape(iterations=iterations, blocks=-(-runs // CELLS))
        with build(path, shape) as store:
            print(f"{len(store.slots())} runs x {iterations} iterations, {path.stat().st_size / 1e6:.1f} MB")
    return path


def report(store: Path, out: Path) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "benchback.cli", "report", str(store), "--out", str(out)], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--megabytes", type=float, default=6.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(given.store or Path(folder) / "large.sqlite", given.runs, given.iterations)
        wall, used = report(store, Path(folder) / "report")
        size = (Path(folder) / "report" / "index.html").stat().st_size / 1e6
    print(f"report: {wall:.1f} s ({used:.1f} s of one processor), page {size:.2f} MB")
    return int(wall > given.seconds or size > given.megabytes)


if __name__ == "__main__":
    sys.exit(main())
