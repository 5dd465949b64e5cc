"""Whether an ejected file is as fast as the tree: both sides resident in processes of their own, taking turns.

    python benchmarks/eject_speed.py [--algorithm ppo ...] [--backend linen ...] [--relays 8] [--rounds 24]
                                     [--limit 2] [--demo] [--store runs/eject_speed.jsonl] [--minutes 7]

As in a relay of `benchback run`, exactly one process runs at a time, the order within a round alternates, the first
call of a turn, with cold caches, is not counted, and neither is time in which a process waited for a processor that
others had. A call is one iteration with its metrics read as numbers; a turn's time is the median of its calls. A relay,
with two fresh processes, gives one ratio: the median of its rounds. The interval is that of the paired t over relays.
The workload is the one of the file as it is ejected, with --demo that of `make demo`, whose iterations are so short
that what Python does around a program shows.

Every relay is kept in the store, a line of JSON with all its turns: run again, it makes only the relays that are
missing, and with --minutes begins none that would not end in time. Relays of a file that is no longer what `eject`
makes are not used. Backends take turns, too, relay by relay. Exit code 1 if for any pair the interval is not within
the limit, in per cent. Run it on one processor: `taskset -c 0`.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchback import registry, stats
from benchback.backends.torch_memory import ENVIRONMENT
from benchback.measure.clock import Tape, queueing_s, waited_s
from benchback.tools.eject import eject
from benchback.training.run import Run

TURNS = """
import gc, json, sys, time
for line in sys.stdin:
    # What is imported is left out of collections: a file imports all of gymnax, the tree does not.
    gc.collect()
    gc.freeze()
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
import numpy as np
from benchback.agent import start
from benchback.training import advance
from benchback.training.run import Run, build

run = Run.from_dict(json.loads(sys.argv[1]))
agent, backend = build(run)
state = start(agent, run.seed)

def step():
    global state
    state, metrics = advance(agent, state)
    {name: float(READ) for name, x in metrics.items()}
"""
EJECTED = """
import sys
sys.path.insert(0, sys.argv[1])
import ejected

iterations = ejected.train(ejected.Config(), 0)

def step():
    next(iterations)
"""
READ = {"jax": "np.asarray(x)", "torch": "x"}
"""Family -> how a file reads a metric; Backend.fetch, which knows GPUs and nested tuples, takes 1 to 9 us longer."""
DEMO = {"num_envs": 16, "num_steps": 64, "num_epochs": 4, "num_minibatches": 4}
"""Fields of PPO in `make demo`, where they are not the defaults."""
LEARNING: dict[str, dict[str, Any]] = {
    "dqn": {"learning_starts": 10},
    "td3": {"start_steps": 50, "update_after": 50},
}
"""Algorithm -> fields with which every iteration learns: before it does, an iteration is another one."""
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
        # A file of PyTorch is started as its header says.
        env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", **ENVIRONMENT}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def turn(self, calls: int) -> float:
        """Seconds of a call, the median of all but the first, without waiting for a processor."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        queued_s = self._queueing_s()
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("turn "):
                tape = Tape(*json.loads(line.removeprefix("turn ")))
                waits = waited_s(tape, self._queueing_s() - queued_s)
                return median(total - wait for total, wait in zip(tape.total_s[1:], waits[1:], strict=True))
        raise RuntimeError(f"a side ended with exit code {self.process.wait()}")

    def _queueing_s(self) -> float:
        """Read from here: a file that is measured imports nothing of ours."""
        return sum(map(queueing_s, Path(f"/proc/{self.process.pid}/task").iterdir()))

    def end(self) -> None:
        """Stop the process."""
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Pair:
    """An algorithm in a backend, with the fields that are not the defaults."""

    algorithm: str
    backend: str
    fields: dict[str, Any]

    @cached_property
    def run(self) -> Run:
        given = {"algorithm": self.algorithm, "backend": self.backend, "num_iterations": MANY, "seed": 0}
        return Run.from_dict(given | self.fields)

    @cached_property
    def text(self) -> str:
        """The ejected file."""
        return eject(self.run, "benchback eject")

    @cached_property
    def key(self) -> str:
        """What relays have in common that can be compared."""
        return hashlib.sha256((json.dumps(self.run.to_dict()) + self.text).encode()).hexdigest()[:16]


Seconds = list[list[float]]
"""Of a call, by side (ejected, tree) and round."""


def relay(pair: Pair, folder: Path, number: int, rounds: int) -> Seconds:
    """Turns of two fresh processes."""
    (folder / "ejected.py").write_text(pair.text)
    tree = TREE.replace("READ", READ[registry.BACKENDS[pair.backend].family])
    sides = [Side(EJECTED, str(folder), folder), Side(tree, json.dumps(pair.run.to_dict()), folder)]
    seconds: Seconds = [[], []]
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
    return seconds


def measure(pairs: list[Pair], store: Path, relays: int, rounds: int, until_s: float) -> None:
    """Append the relays that the store lacks, the pairs in turns, as long as another one is expected to end in time."""
    longest_s = dict.fromkeys((pair.key for pair in pairs), 0.0)
    for number, pair in product(range(relays), pairs):
        begun_s = time.monotonic()
        if number < len(stored(store, pair)) or begun_s + longest_s[pair.key] > until_s:
            continue
        # Beside the store, with what was compiled, until file or run change.
        folder = store.with_suffix("") / pair.key
        folder.mkdir(parents=True, exist_ok=True)
        row = {"key": pair.key, "algorithm": pair.algorithm, "backend": pair.backend}
        row |= {"seconds": relay(pair, folder, number, rounds)}
        with store.open("a") as file:
            file.write(json.dumps(row) + "\n")
        longest_s[pair.key] = max(longest_s[pair.key], time.monotonic() - begun_s)


def stored(store: Path, pair: Pair) -> list[Seconds]:
    """The relays of a pair, as long as neither the file nor the run has changed."""
    rows = map(json.loads, store.read_text().splitlines()) if store.exists() else []
    return [row["seconds"] for row in rows if row["key"] == pair.key]


def print_row(pair: Pair, relays: list[Seconds]) -> stats.Ratio:
    """The ratio, which is not a number without relays, the tree's time and the ratio of every relay."""
    ratios = [median(ejected / tree for ejected, tree in zip(*seconds, strict=True)) for seconds in relays]
    found = stats.paired_ratio(ratios, [1.0] * len(ratios))
    tree_s = median(x for seconds in relays for x in seconds[1]) if relays else math.nan
    shown = f"ejected / tree {found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}], {1e3 * tree_s:.1f} ms an iteration"
    print(f"{pair.algorithm} {pair.backend}: {shown}; relays", *(f"{x:.3f}" for x in ratios), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", nargs="+", default=["ppo"])
    parser.add_argument("--backend", nargs="+", default=list(registry.BACKENDS))
    parser.add_argument("--relays", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--store", type=Path, default=Path("runs/eject_speed.jsonl"))
    parser.add_argument("--minutes", type=float, default=math.inf)
    given = parser.parse_args()
    until_s = time.monotonic() + 60 * given.minutes
    names = product(given.algorithm, given.backend)
    pairs = [Pair(*x, LEARNING.get(x[0], {}) | (DEMO if given.demo else {})) for x in names]
    given.store.parent.mkdir(parents=True, exist_ok=True)
    measure(pairs, given.store, given.relays, given.rounds, until_s)
    beyond = []
    for pair in pairs:
        found = print_row(pair, stored(given.store, pair))
        if not 1 - given.limit / 100 <= found.low <= found.high <= 1 + given.limit / 100:
            beyond.append(f"{pair.algorithm} {pair.backend}")
    if beyond:
        sys.exit(f"not shown to be within {given.limit:g} %: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
