"""Memory of every algorithm in plain JAX, from its compiled iteration: nothing is run, nothing is allocated.

    python benchmarks/memory.py [--envs 1024 16384] [--replay 1000000] [--backend purejax]

The state is donated to the program. Of each: bytes of the state, how many of them the program writes in place
(aliased), bytes beside it while it runs (temporaries), the peak of both for each environment, and copies in the
optimised program of arrays as long as the replay.
"""

import argparse
import math
import re
from dataclasses import replace
from typing import Any

import jax

from benchback import envs, registry

TASKS = {"ppo": "CartPole-v1", "vpg": "CartPole-v1", "dqn": "CartPole-v1", "td3": "Pendulum-v1"}
STEPS = {"ppo": 32, "vpg": 32, "dqn": 1, "td3": 1}
"""Steps of a rollout."""


def config_of(algorithm: str, num_envs: int, replay: int) -> Any:
    """The algorithm's defaults in that many environments."""
    config = registry.config(algorithm)(num_envs=num_envs, num_steps=STEPS[algorithm])
    return replace(config, replay_capacity=replay) if hasattr(config, "replay_capacity") else config


def compiled(algorithm: str, backend: str, config: Any) -> tuple[Any, Any]:
    """The program of one iteration, and the shapes of its state."""
    make, found = registry.load(algorithm, backend)
    agent = make(config, envs.make(f"gymnax/{TASKS[algorithm]}", config.num_envs, "jax"))
    if found.functional is not None:
        agent = found.functional(agent)
    state = jax.eval_shape(agent.init, agent.key(0), agent.hyper)

    def iterate(state: Any) -> Any:
        return agent.update(*agent.rollout(state))

    return jax.jit(iterate, donate_argnums=0).lower(state).compile(), state


def copies(text: str, length: int) -> int:
    """Copies of arrays whose first axis is that long."""
    shapes = re.findall(r"= \w+\[([\d,]+)\]\S* copy\(", text)
    return sum(int(shape.split(",")[0]) == length for shape in shapes)


def row(algorithm: str, backend: str, num_envs: int, replay: int) -> str:
    """A line of the table."""
    config = config_of(algorithm, num_envs, replay)
    program, state = compiled(algorithm, backend, config)
    memory = program.memory_analysis()
    held = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state) if hasattr(x.dtype, "itemsize"))
    capacity = getattr(config, "replay_capacity", 0)
    copied = str(copies(program.as_text(), capacity)) if capacity else "-"
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    peak -= memory.alias_size_in_bytes
    return (
        f"| {algorithm} | {num_envs:,} | {capacity:,} | {held / 1e6:.1f} | {memory.alias_size_in_bytes / held:.1%} | "
        f"{memory.temp_size_in_bytes / 1e6:.1f} | {peak / 1e6:.1f} | {peak / num_envs:,.0f} | {copied} |"
    )


def main() -> None:
    """Compile, then print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--replay", type=int, default=1_000_000)
    parser.add_argument("--backend", default="purejax")
    flags = parser.parse_args()
    print(
        "| algorithm | environments | replay | state MB | of it aliased | temporaries MB | peak MB | peak bytes per "
        "environment | copies of the replay |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for algorithm in TASKS:
        for num_envs in flags.envs:
            print(row(algorithm, flags.backend, num_envs, flags.replay), flush=True)


if __name__ == "__main__":
    main()
