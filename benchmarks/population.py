"""Many agents in one program, against PureJaxRL's way under vmap: the same PPO work, in one process, in turns.

    NPROC=1 python benchmarks/population.py [--members 1 32 256 1024] [--rounds 7] [--groups 8]

The work is workload B: CartPole, 4 environments x 128 steps, 4 minibatches, 4 epochs, two towers of 64-64. Every round
runs each side once, in an order drawn anew; ratios are within a round, above 1 where ours is faster. Theirs is the
baseline `measure/peers/programs/purejax_style.py`, vmapped over seeds and initialised one after another, because the
wide batched QR of a vmapped initialisation can stop XLA's threads. One thread each: set NPROC=1 before starting.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import jax

import benchback
from benchback import envs, registry
from benchback.agent import Gradients, start
from benchback.measure.peers.work import WORKLOADS
from benchback.population.members import execute

WORK = WORKLOADS["B"]
BACKEND = "purejax"
REFERENCE = "PureJaxRL's way, vmap"
CALL_STEPS = 2**18
"""Steps of all agents in one program call, about: some seconds at most."""


@dataclass
class Side:
    """A program of `iterations`, the state it is at and the time each call took."""

    program: Callable[[Any], tuple[Any, Any]]
    state: Any
    compile_s: float
    bytes: float
    seconds: list[float] = field(default_factory=list)

    def call(self) -> None:
        """Run the program once."""
        started = time.perf_counter()
        self.state, metrics = self.program(self.state)
        jax.block_until_ready((self.state, metrics))
        self.seconds.append(time.perf_counter() - started)


def compiled(function: Callable[[Any], Any], state: Any) -> Side:
    """The function compiled, with the memory of its state, results and temporaries, and called once."""
    started = time.perf_counter()
    program = jax.jit(function, donate_argnums=0).lower(state).compile()
    compile_s = time.perf_counter() - started
    memory: Any = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    side = Side(program, state, compile_s, held - memory.alias_size_in_bytes)
    side.call()
    side.seconds.clear()
    return side


def ours(size: int, group: int, iterations: int, gradients: Gradients) -> Side:
    """`size` members in groups, a chunk of iterations as one program."""
    make, backend = registry.load("ppo", BACKEND, gradients)
    agent = make(WORK.config, envs.make(f"gymnax/{WORK.env}", WORK.config.num_envs, "jax"))
    many = execute(agent, backend, "none", "chunk", iterations, size=size, group=min(group, size))
    assert many.iterate is not None
    return compiled(many.iterate, start(many, 0))


def theirs(size: int, iterations: int) -> Side:
    """`size` seeds under one vmap."""
    sys.path.insert(0, str(Path(benchback.__file__).parent / "measure" / "peers" / "programs"))
    import purejax_style  # pyright: ignore[reportMissingImports]

    begin, update = purejax_style.make_parts(SimpleNamespace(**WORK.to_dict()))
    runner = jax.jit(lambda keys: jax.lax.map(begin, keys))(jax.random.split(jax.random.PRNGKey(0), size))
    return compiled(jax.vmap(lambda one: jax.lax.scan(update, one, None, iterations)), runner)


def table(size: int, groups: list[int], rounds: int) -> None:
    """Print the rows of one population size."""
    iterations = max(2, CALL_STEPS // (size * WORK.config.batch_size))
    sides = {REFERENCE: theirs(size, iterations)}
    for group in sorted({min(group, size) for group in groups}):
        for gradients in get_args(Gradients):
            sides[f"ours, groups of {group}, {gradients}"] = ours(size, group, iterations, gradients)
    order = random.Random(size)
    for _ in range(rounds):
        for name in order.sample(list(sides), len(sides)):
            sides[name].call()
    steps = size * iterations * WORK.config.batch_size
    for name, side in sides.items():
        ratios = [a / b for a, b in zip(sides[REFERENCE].seconds, side.seconds, strict=True)]
        print(
            f"| {size} | {name} | {steps / statistics.median(side.seconds) / 1e3:.0f} k | "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | "
            f"{side.bytes / size / 1e3:.0f} kB | {side.compile_s:.1f} s |",
            flush=True,
        )


def main() -> None:
    """Time, then print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 32, 256, 1024])
    parser.add_argument("--groups", type=int, nargs="+", default=[8])
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args()
    print("| agents | program | agent steps/s | ratio (rounds) | memory per agent | compile |")
    print("|---:|---|---:|---|---:|---:|")
    for size in flags.members:
        table(size, flags.groups, flags.rounds)


if __name__ == "__main__":
    main()
