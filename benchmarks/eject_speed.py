"""Whether an ejected file is as fast as the tree: both sides resident in processes of their own, taking turns.

    python benchmarks/eject_speed.py [--algorithm ppo] [--backend linen ...] [--rounds 60] [--calls 4] [--limit 2]

As in a relay, exactly one process runs at a time, the order within a round alternates, and the first call of a turn,
with cold caches, is not counted. A call is one iteration with its metrics fetched. Exit code 1 if for any backend the
interval of the ratio is not within the limit, in per cent.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchback import registry
from benchback.tools.eject import eject
from benchback.training.run import Run

TURNS = """
import sys, time
for line in sys.stdin:
    seconds = []
    for _ in range(int(line)):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    print("turn", sum(seconds[1:]) / (len(seconds) - 1), flush=True)
"""
TREE = """
import json, sys
from benchback.agent import start
from benchback.training import advance
from benchback.training.run import Run, build

run = Run.from_dict(json.loads(sys.argv[1]))
agent, backend = build(run)
state = start(agent, run.seed)

def step():
    global state
    state, metrics = advance(agent, state)
    backend.fetch(metrics)
"""
EJECTED = """
import sys
sys.path.insert(0, sys.argv[1])
import ejected

iterations = ejected.train(ejected.Config(), 0)

def step():
    next(iterations)
"""
MANY = 1_000_000
"""Iterations that neither side reaches."""


class Side:
    """A process that runs iterations when it is asked to."""

    def __init__(self, code: str, argument: str):
        command = [sys.executable, "-c", code + TURNS, argument]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self, calls: int) -> float:
        """Seconds of a call, the mean of all but the first."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("turn "):
                return float(line.split()[1])
        raise RuntimeError(f"a side ended with exit code {self.process.wait()}")

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.wait()


def ratios(run: Run, folder: Path, rounds: int, calls: int) -> np.ndarray:
    """Ejected / tree, of each round."""
    (folder / "ejected.py").write_text(eject(run, "benchback eject"))
    tree, ejected = Side(TREE, json.dumps(run.to_dict())), Side(EJECTED, str(folder))
    try:
        for side in (tree, ejected):  # compiles, and fills the replay of who has one
            side.turn(2 * calls)
        found = []
        for number in range(rounds):
            order = (tree, ejected) if number % 2 else (ejected, tree)
            seconds = {side: side.turn(calls) for side in order}
            found.append(seconds[ejected] / seconds[tree])
    finally:
        tree.end()
        ejected.end()
    return np.array(found)


def interval(ratio: np.ndarray) -> tuple[float, float, float]:
    """The median, and the ends of its 95 % interval by resampling of rounds."""
    drawn = np.random.default_rng(0).choice(ratio, (2000, len(ratio)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(np.median(ratio)), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="ppo")
    parser.add_argument("--backend", nargs="+", default=list(registry.BACKENDS))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--limit", type=float, default=2.0)
    given = parser.parse_args()
    slower = []
    for backend in given.backend:
        fields = {"algorithm": given.algorithm, "backend": backend, "num_iterations": MANY}
        with tempfile.TemporaryDirectory() as folder:
            ratio = ratios(Run.from_dict(fields), Path(folder), given.rounds, given.calls)
        middle, low, high = interval(ratio)
        print(f"{backend}: ejected / tree {middle:.3f} ({low:.3f} to {high:.3f}) over {len(ratio)} rounds", flush=True)
        if low < 1 - given.limit / 100 or high > 1 + given.limit / 100:
            slower.append(backend)
    if slower:
        sys.exit(f"not shown to be within {given.limit:g} %: {', '.join(slower)}")


if __name__ == "__main__":
    main()
