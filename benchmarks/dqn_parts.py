"""Where an iteration of DQN goes, in processor time: all of it, what is not learning, and its products by themselves.

    NPROC=1 python benchmarks/dqn_parts.py [--rounds 7] [--iterations 1000]

Workload D of `benchback peers`: CartPole, 10 environments, a gradient step on 128 transitions, 120-84. Programs of many
iterations run in turns in one process, plain JAX and PureJaxRL's way (`purejax_dqn.py`); processor time, so that
others on the machine matter little. Products are timed in XLA, each alone in a loop that changes its left factor, and
in NumPy. One thread: set NPROC=1 before starting.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

import benchback
from benchback import envs, registry
from benchback.agent import start
from benchback.measure.peers.work import WORKLOADS

sys.path.insert(0, str(Path(benchback.__file__).parent / "measure" / "peers" / "programs"))

WORK = WORKLOADS["D"]
NEVER = 2**30
Call = Callable[[], None]


def looped(step: Callable[[Any], tuple[Any, Any]], state: Any, iterations: int) -> Call:
    """A program of many steps, compiled and called once; each call goes on where the last one stopped."""
    program = jax.jit(lambda x: jax.lax.scan(lambda x, _: step(x), x, None, iterations), donate_argnums=0)
    held = [program(state)[0]]

    def call() -> None:
        held[0], out = program(held[0])
        jax.block_until_ready((held[0], out))

    return call


def ours(iterations: int, *, learning: bool = True) -> Call:
    """Plain JAX; without learning, by a start of it that never comes."""
    config = WORK.config if learning else replace(WORK.config, learning_starts=NEVER)
    make, backend = registry.load("dqn", "purejax")
    agent = backend.units["iteration"](make(config, envs.make(f"gymnax/{WORK.env}", WORK.config.num_envs, "jax")), 1)
    assert agent.iterate is not None
    return looped(agent.iterate, start(agent, 0), iterations)


def theirs(iterations: int) -> Call:
    """PureJaxRL's way."""
    import purejax_dqn

    total = WORK.config.num_iterations * WORK.config.num_envs
    begin, update = purejax_dqn.make_parts(SimpleNamespace(**WORK.to_dict(), total_steps=total))
    return looped(lambda runner: update(runner, None), jax.jit(begin)(jax.random.PRNGKey(0)), iterations)


def product(rows: int, inputs: int, outputs: int, iterations: int) -> Call:
    """One product in XLA, again and again."""
    key = jax.random.key(0)
    left, right = jax.random.normal(key, (rows, inputs)), jax.random.normal(key, (inputs, outputs))

    def step(carry: jax.Array) -> tuple[jax.Array, None]:
        return carry + 1e-9 * ((left + carry) @ right)[0, 0], None

    return looped(step, jnp.float32(0), iterations)


def in_turns(calls: dict[Any, Call], rounds: int, iterations: int) -> dict[Any, float]:
    """Median microseconds of processor time of one iteration of each."""
    spent: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            before = time.process_time()
            call()
            spent[name].append(time.process_time() - before)
    return {name: 1e6 * statistics.median(x) / iterations for name, x in spent.items()}


def main() -> None:
    """Time, then print tables as Markdown."""
    from limits import product_s  # pyright: ignore[reportMissingImports]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=1000)
    flags = parser.parse_args()
    count = flags.iterations
    wholes = {
        "plain JAX": ours(count),
        "plain JAX, never learning": ours(count, learning=False),
        "PureJaxRL's way": theirs(count),
    }
    print("| an iteration of | processor microseconds |\n|---|---:|")
    for name, found in in_turns(wholes, flags.rounds, count).items():
        print(f"| {name} | {found:.0f} |", flush=True)
    asked: dict[tuple[int, int, int], float] = {}
    for times, rows, inputs, outputs in WORK.demand()["products"]:
        asked[rows, inputs, outputs] = asked.get((rows, inputs, outputs), 0) + times
    found = in_turns({shape: product(*shape, count) for shape in asked}, flags.rounds, count)
    numpy = {shape: 1e6 * product_s(*shape, 0.05) for shape in asked}
    print("\n| product | how many | XLA us | NumPy us |\n|---|---:|---:|---:|")
    for shape, times in asked.items():
        print(f"| {' x '.join(map(str, shape))} | {times:g} | {found[shape]:.1f} | {numpy[shape]:.1f} |")
    total, least = (sum(times * x[shape] for shape, times in asked.items()) for x in (found, numpy))
    print(f"| all | | {total:.0f} | {least:.0f} |")


if __name__ == "__main__":
    main()
