"""Whether a framework costs anything once training is one program: the five JAX backends in one process, in turns.

    python benchmarks/fused.py [--workload A] [--iterations 4] [--rounds 30] [--gradients reordered] [--products]

Every round runs each program once, in an order drawn anew; a round is a block of paired ratios against plain JAX, whose
twin, compiled a second time, shows what no difference looks like. One process shares one state of the machine, so this
finds smaller differences than the study `fused`, whose runs are processes of their own. Also printed: instructions of
each optimised program, and whether two programs are the same but for the names in them.

`--gradients reordered` computes the gradients of kernels in the order that is fastest on a CPU, the same for all
(`backends/kernel_gradients.py`); by default the order is left to frameworks and XLA.

`--products` times one thing only: the gradients of kernels kept as [in, out] and as [out, in], Equinox's way.
"""

import argparse
import random
import re
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, get_args

import jax

from benchback import envs, registry
from benchback.agent import Gradients, start
from benchback.measure.peers.work import WORKLOADS, Workload
from benchback.stats.ratios import paired_ratio

REFERENCE = "purejax"
FAMILY = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]


@dataclass
class Contestant:
    """A compiled program, the state it is at and the time each execution took."""

    program: Any
    state: Any
    seconds: list[float]
    instructions: Counter[str]


def contestant(backend_name: str, work: Workload, iterations: int, gradients: Gradients) -> Contestant:
    """`iterations` of the workload as one program of the backend, run once."""
    make, backend = registry.load("ppo", backend_name, gradients)
    env = envs.make(f"gymnax/{work.env}", work.config.num_envs, "jax")
    plain = make(work.config, env)
    agent = backend.units["chunk"](plain, iterations)
    executed = backend.modes[registry.BACKENDS[backend_name].best](agent)
    state = start(executed, 0)
    assert agent.iterate is not None
    assert executed.iterate is not None
    compiled = jax.jit(agent.iterate).lower(start(plain, 0)).compile()
    state, metrics = executed.iterate(state)
    jax.block_until_ready(metrics)
    return Contestant(executed.iterate, state, [], instructions(compiled.as_text() or ""))


def instructions(text: str) -> Counter[str]:
    """How often the optimised program holds each kind of instruction, with its shapes."""
    return Counter(re.findall(r"= (\S+ [a-z][\w-]*)\(", text))


LAYERS = {"first layer": (4, 64), "hidden layer": (64, 64), "policy's head": (64, 2), "value's head": (64, 1)}
"""Inputs and outputs of the layers of workload A."""


def print_products(rows: int = 1024, rounds: int = 300) -> None:
    """Microseconds of the products that give the layers' gradients, in either layout, in turns."""
    x_by_size = {size: jax.random.normal(jax.random.key(size), (rows, size)) for size in (1, 2, 4, 64)}
    kept = {"[in, out]": jax.jit(lambda x, slope: x.T @ slope), "[out, in]": jax.jit(lambda x, slope: slope.T @ x)}
    ways = {(layer, way): (x_by_size[size[0]], x_by_size[size[1]]) for layer, size in LAYERS.items() for way in kept}
    # Equinox's layer with out_features="scalar" has one row and no axis for it.
    ways["value's head", "[out, in]"] = x_by_size[64], x_by_size[1][:, 0]
    seconds: dict[tuple[str, str], list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for (layer, way), operands in ways.items():
            started = time.perf_counter()
            jax.block_until_ready(kept[way](*operands))
            seconds[layer, way].append(time.perf_counter() - started)
    for (layer, way), taken in seconds.items():
        low, middle, _ = statistics.quantiles(taken, n=4)
        print(f"{layer:<14} {way}: lower quartile {1e6 * low:.0f} us, median {1e6 * middle:.0f} us")


def main() -> None:
    """Time, then print a row for each backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=[x.name for x in WORKLOADS.values() if x.algorithm == "ppo"], default="A")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--gradients", choices=get_args(Gradients), default="framework")
    parser.add_argument("--products", action="store_true")
    flags = parser.parse_args()
    if flags.products:
        print_products()
        return
    work = WORKLOADS[flags.workload]
    names = [*FAMILY, f"{REFERENCE}'"]
    contestants = {name: contestant(name.removesuffix("'"), work, flags.iterations, flags.gradients) for name in names}
    order = random.Random(0)
    for _ in range(flags.rounds):
        for name in order.sample(names, len(names)):
            one = contestants[name]
            started = time.perf_counter()
            one.state, metrics = one.program(one.state)
            jax.block_until_ready(metrics)
            one.seconds.append(time.perf_counter() - started)
    reference = contestants[REFERENCE]
    print(
        f"{flags.workload}, {flags.iterations} iterations a program, {flags.rounds} rounds; "
        f"gradients {flags.gradients}; time over that of {REFERENCE}"
    )
    for name, one in contestants.items():
        found = paired_ratio(one.seconds, reference.seconds)
        apart = sum(
            ((one.instructions - reference.instructions) + (reference.instructions - one.instructions)).values()
        )
        print(
            f"{name:<9} {found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}]  "
            f"{1e3 * min(one.seconds) / flags.iterations:.2f} ms at best, "
            f"{one.instructions.total()} instructions, {apart} not shared"
        )


if __name__ == "__main__":
    main()
