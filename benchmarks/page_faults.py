"""Memory that a training gets anew at every iteration: page faults, in fresh processes, and the time they take.

    python benchmarks/page_faults.py [--config JSON] [--processes 6] [--iterations 10] [--as-glibc-does]

The default is PyTorch with a GRU, whose speed differed from process to process. With `--as-glibc-does` PyTorch does
not keep what it frees. Programs are kept in a folder of their own, so processes after the first do not compile. Times
are of the processor.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

from benchback.agent import start
from benchback.backends import torch_memory
from benchback.measure.machine import variables
from benchback.training import advance
from benchback.training.run import Run, build

CHILD = "BENCHBACK_PAGE_FAULTS"
SIZES = {"num_envs": 32, "num_steps": 32, "num_epochs": 2, "num_minibatches": 4, "hidden_sizes": [128]}
GRU = {"backend": "pytorch", "network": "gru", "env": "gymnax/Breakout-MinAtar"} | SIZES
WARM_UP = 3


def iteration(agent, block, state):
    """The state after an iteration; milliseconds in all and in the system, and page faults."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.process_time()
    state, metrics = advance(agent, state)
    block(metrics)
    spent = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    system = after.ru_stime - before.ru_stime
    return state, (1e3 * spent, 1e3 * system, after.ru_minflt - before.ru_minflt)


def measure(run: Run, iterations: int) -> None:
    """Print the medians of a training's iterations."""
    import numpy as np

    agent, backend = build(run)
    state, rows = start(agent, run.seed), []
    for _ in range(iterations + WARM_UP):
        state, row = iteration(agent, backend.block, state)
        rows.append(row)
    total, system, faults = np.median(rows[WARM_UP:], axis=0)
    print(f"| {total:.1f} | {system:.1f} | {faults:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=json.loads, default={}, help="fields of the run, as JSON")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--as-glibc-does", action="store_true")
    given = parser.parse_args()
    if CHILD in os.environ:
        if given.as_glibc_does:
            torch_memory.keep_freed_memory = lambda: None
        measure(Run.from_dict({"algorithm": "ppo"} | GRU | given.config), given.iterations)
        return
    print("| iteration, ms | of it in the system, ms | page faults |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as caches:
        for _ in range(given.processes):
            subprocess.run([sys.executable, *sys.argv], env=variables(1, caches) | {CHILD: "1"}, check=True)


if __name__ == "__main__":
    main()
