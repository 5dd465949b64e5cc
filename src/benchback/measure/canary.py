"""The canary: a fixed piece of work, timed before and after each block, that shows when the machine itself changed."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchback.measure import machine

REPEATS = 5


def run() -> dict[str, float]:
    """Seconds of a fixed piece of work: `matmul_s` for the processor, `memcpy_s` for the memory.

    It runs in a fresh process, on one thread, pinned as workers are: a linear-algebra library reads its thread count
    once, when it is loaded, and the coordinator's may have been loaded with any.
    """
    code = "import json; from benchback.measure import canary; print(json.dumps(canary.work()))"
    with tempfile.TemporaryDirectory(prefix="benchback-canary-") as caches:
        command = [sys.executable, "-c", code]
        # In a process group of its own, so that Ctrl-C at the coordinator's terminal does not reach the canary.
        done = subprocess.run(
            command,
            env=machine.variables(1, caches),
            capture_output=True,
            text=True,
            check=True,
            start_new_session=True,
        )
    return json.loads(done.stdout)


def work() -> dict[str, float]:
    """The canary's work itself, about 50 ms: medians over repetitions after a warm-up."""
    machine.pin(os.getpid(), 1)
    matrix = np.random.default_rng(0).standard_normal((384, 384), dtype=np.float32)
    source, target = np.ones(4 << 20), np.zeros(4 << 20)
    product = np.empty_like(matrix)
    matmul_s, memcpy_s = [], []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        for _ in range(3):
            np.matmul(matrix, matrix, out=product)
        middle = time.perf_counter()
        np.copyto(target, source)
        matmul_s.append(middle - start)
        memcpy_s.append(time.perf_counter() - middle)
    return {"matmul_s": statistics.median(matmul_s[1:]), "memcpy_s": statistics.median(memcpy_s[1:])}
