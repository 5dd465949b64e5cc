"""Whether an ejected file is as fast as the tree: both sides resident in processes of their own, taking turns.

    python benchmarks/eject_speed.py [--algorithm ppo] [--backend linen ...] [--relays 6] [--rounds 8]
                                     [--limit 2] [--demo]

As in a relay of `benchback run`, exactly one process runs at a time, the order within a round alternates, the first
call of a turn, with cold caches, is not counted, and neither is time in which a process waited for a processor that
others had. A call is one iteration with its metrics fetched. A relay, with two fresh processes, gives one ratio: the
median of its rounds. The interval is that of the paired t over relays. The workload is the one of the file as it is
ejected, with --demo that of `make demo`, whose iterations are so short that what Python does around a program shows.
Exit code 1 if for any backend the interval is not within the limit, in per cent. Run it on
one processor: `taskset -c 0`.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchback import registry, stats
from benchback.measure.clock import Tape, queueing_s, waited_s
from benchback.tools.eject import eject
from benchback.training.run import Run

TURNS = """
import json, sys, time
for line in sys.stdin:
    total_s, cpu_s = [], []
    for _ in range(int(line)):
        started, started_cpu = time.perf_counter(), time.process_time()
        step()
        total_s.append(time.perf_counter() - started)
        cpu_s.append(time.process_time() - started_cpu)
    print("turn", json.dumps([total_s, cpu_s]), flush=True)
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
DEMO = {"num_envs": 16, "num_steps": 64, "num_epochs": 4, "num_minibatches": 4}
"""Fields of PPO in `make demo`, where they are not the defaults."""
MANY = 1_000_000
"""Iterations that neither side reaches."""
TURN_S = 0.1
"""Seconds of a turn, about; at least two calls count."""


class Side:
    """A process that runs iterations when it is asked to."""

    def __init__(self, code: str, argument: str, caches: Path):
        command = [sys.executable, "-c", code + TURNS, argument]
        # Programs that the first relay compiled are loaded by the others.
        kept = {"JAX_COMPILATION_CACHE_DIR": "jax", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
        env = os.environ | {name: str(caches / folder) for name, folder in kept.items()}
        env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def turn(self, calls: int) -> float:
        """Seconds of a call, the mean of all but the first, without waiting for a processor."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        queued_s = self._queueing_s()
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("turn "):
                tape = Tape(*json.loads(line.removeprefix("turn ")))
                waits = waited_s(tape, self._queueing_s() - queued_s)
                return sum(total - wait for total, wait in zip(tape.total_s[1:], waits[1:], strict=True)) / (calls - 1)
        raise RuntimeError(f"a side ended with exit code {self.process.wait()}")

    def _queueing_s(self) -> float:
        """Read from here: a file that is measured imports nothing of ours."""
        return sum(map(queueing_s, Path(f"/proc/{self.process.pid}/task").iterdir()))

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.wait()


def relay(run: Run, folder: Path, number: int, rounds: int) -> tuple[float, float]:
    """Of one relay: the ejected file's time of a call over the tree's, and the tree's in seconds; medians of rounds."""
    sides = [Side(EJECTED, str(folder), folder), Side(TREE, json.dumps(run.to_dict()), folder)]
    seconds: list[list[float]] = [[], []]
    try:
        # Who starts first alternates, too. The first turn compiles, and the second says how long a call takes.
        warm = [(sides[i].turn(3), sides[i].turn(3))[1] for i in ((0, 1) if number % 2 else (1, 0))]
        calls = 1 + max(2, math.ceil(TURN_S / min(warm)))
        for place in range(rounds):
            for i in (0, 1) if place % 2 else (1, 0):
                seconds[i].append(sides[i].turn(calls))
    finally:
        for side in sides:
            side.end()
    return median(ejected / tree for ejected, tree in zip(*seconds, strict=True)), median(seconds[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="ppo")
    parser.add_argument("--backend", nargs="+", default=list(registry.BACKENDS))
    parser.add_argument("--relays", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--demo", action="store_true")
    given = parser.parse_args()
    beyond = []
    for backend in given.backend:
        fields = {"algorithm": given.algorithm, "backend": backend, "num_iterations": MANY, "seed": 0}
        run = Run.from_dict(fields | (DEMO if given.demo else {}))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "ejected.py").write_text(eject(run, "benchback eject"))
            found = [relay(run, folder, number, given.rounds) for number in range(given.relays)]
        ratios, tree = zip(*found, strict=True)
        ratio = stats.paired_ratio(ratios, [1.0] * len(ratios))
        times = f"{1e3 * stats.geometric_mean(tree):.1f} ms an iteration"
        print(f"{backend}: ejected / tree {ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], {times};", end=" ")
        print("relays", *(f"{x:.3f}" for x in ratios), flush=True)
        if not 1 - given.limit / 100 <= ratio.low <= ratio.high <= 1 + given.limit / 100:
            beyond.append(backend)
    if beyond:
        sys.exit(f"not shown to be within {given.limit:g} %: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
