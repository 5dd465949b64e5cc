"""A population on all processors: one program over several CPU devices, against one device and against processes.

    python benchmarks/population_cores.py [--members 2 8 32 256] [--rounds 7]

The work is that of `benchmarks/population.py`. Sides are resident processes that take turns, in an order drawn anew in
every round: `one`, all members on one device, pinned to one processor; `all`, the members divided over as many CPU
devices as there are processors; `processes`, a single agent in a process of its own on each processor, all at the same
time: what N processes give as long as they do not have to be started. Rates are agent steps per second without
compiling.

A round counts only if no side waited for a processor that another program had for more than 5 % of its time, by the
kernel's counters: with the second processor busy, two devices cannot be faster than one. Rounds are added until so many
have counted, ten times as many at most; if none does, nothing is printed.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CALL_STEPS = 2**16
"""Steps of all agents in one program call, about."""
CPUS = sorted(os.sched_getaffinity(0))
MOST_WAITED = 0.05
"""Share of a turn that its threads may have waited for a processor."""
MOST_ROUNDS = 10
"""Rounds at most, for each that is asked for."""


def waited_s() -> float:
    """Seconds that the threads of this process have been ready to run and waited for a processor."""
    return sum(int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat")) / 1e9


def child(size: int, devices: int) -> None:
    """Answer each line of input with the seconds of one program call, of so many steps."""
    import jax
    import population as benchmark

    from benchback.agent import start
    from benchback.population.devices import divided
    from benchback.population.groups import likely_group
    from benchback.population.members import view

    agent, backend = benchmark.single("ppo", "reordered")
    batch_size = benchmark.WORK.config.batch_size
    iterations = max(2, CALL_STEPS // (max(size, 8) * batch_size))
    group = likely_group(agent, backend, size // devices).group
    many: Any = divided(view(backend.units["chunk"](agent, iterations), backend), size, group, devices)
    program = jax.jit(many.iterate, donate_argnums=0)
    state, _ = jax.block_until_ready(program(start(many, 0)))
    print(json.dumps({"ready": size * iterations * batch_size}), flush=True)
    for _ in sys.stdin:
        started, cpu, waited = time.perf_counter(), time.process_time(), waited_s()
        state, _ = jax.block_until_ready(program(state))
        took = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
        print(json.dumps(took | {"waited": waited_s() - waited}), flush=True)


class Child:
    """A resident process with so many members on so many devices, pinned to these processors."""

    def __init__(self, size: int, devices: int, cpus: list[int]) -> None:
        flags = f"--xla_force_host_platform_device_count={devices}" if devices > 1 else ""
        known = {"NPROC": str(devices), "XLA_FLAGS": " ".join([os.environ.get("XLA_FLAGS", ""), flags]).strip()}
        self.process = subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, cpus)), sys.executable, __file__, "--child", str(size), str(devices)],
            env=os.environ | known,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.steps = 0

    def read(self) -> dict[str, Any]:
        """The next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side ended with exit code {self.process.wait()}")
        return json.loads(line)

    def go(self) -> None:
        """Begin a call."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


def rate(sides: list[Child]) -> tuple[float, float, float]:
    """Agent steps per second of these processes at the same time, processors in use, and the largest share waited."""
    for side in sides:
        side.go()
    took = [side.read() for side in sides]
    rates = [side.steps / x["seconds"] for side, x in zip(sides, took, strict=True)]
    return sum(rates), sum(x["cpu"] / x["seconds"] for x in took), max(x["waited"] / x["seconds"] for x in took)


def measured(size: int, singles: list[Child], rounds: int) -> None:
    """Print the rows of one population size."""
    devices = next(d for d in range(len(CPUS), 0, -1) if size % d == 0)
    sides = {"one": [Child(size, 1, CPUS[:1])], "all": [Child(size, devices, CPUS)], "processes": singles}
    for side in (*sides["one"], *sides["all"]):
        side.steps = side.read()["ready"]
    order, tried, quiet = random.Random(size), 0, list[dict[str, tuple[float, float, float]]]()
    while len(quiet) < rounds and tried < MOST_ROUNDS * rounds:
        seen = {name: rate(sides[name]) for name in order.sample(list(sides), len(sides))}
        tried += 1
        if max(waited for *_, waited in seen.values()) < MOST_WAITED:
            quiet.append(seen)
    print(f"{size} agents: {len(quiet)} of {tried} rounds were quiet", file=sys.stderr)
    found = {name: [seen[name] for seen in quiet] for name in sides} if quiet else {}
    for name, rates in found.items():
        speed, used = (statistics.median(x[i] for x in rates) for i in (0, 1))
        ratios = {
            other: [a[0] / b[0] for a, b in zip(rates, found[other], strict=True)] for other in ("one", "processes")
        }
        told = " | ".join(f"{statistics.median(x):.2f} ({min(x):.2f} to {max(x):.2f})" for x in ratios.values())
        print(f"| {size} | {name} | {speed / 1e3:.0f} k | {used:.2f} | {told} |", flush=True)
    for side in (*sides["one"], *sides["all"]):
        side.process.kill()


def main() -> None:
    """Time, then print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[2, 8, 32, 256])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", type=int, nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        child(*flags.child)
        return
    singles = [Child(1, 1, [cpu]) for cpu in CPUS]
    for single in singles:
        single.steps = single.read()["ready"]
    print("| agents | program | agent steps/s | processors used | against one | against processes |")
    print("|---:|---|---:|---:|---|---|")
    for size in flags.members:
        measured(size, singles, flags.rounds)
    for single in singles:
        single.process.kill()


if __name__ == "__main__":
    main()
