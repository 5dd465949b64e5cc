"""Memory of every algorithm over the number of environments, and of a replay of a million transitions.

    python benchmarks/memory.py [--envs 1024 16384] [--replay 1000000] [--backend purejax]
    python benchmarks/memory.py --measured --backend pytorch

Without --measured, from the compiled iteration of a JAX backend: nothing is run, nothing is allocated. The state is
donated to the program. Of each: bytes of the state, how many of them the program writes in place (aliased), bytes
beside it while it runs (temporaries), the peak of both for each environment, and copies in the optimised program of
arrays as large as the replay.

With --measured, from a fresh process each, of any backend: bytes of the state, and how much the resident set grew
beyond that before the state was made, once its programs were compiled. Compiled code and what the compiler leaves are
part of it, so what an environment takes is the difference of two rows.
"""

import argparse
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchback import registry

TASKS = {"ppo": "CartPole-v1", "vpg": "CartPole-v1", "dqn": "CartPole-v1", "td3": "Pendulum-v1"}
STEPS = {"ppo": 32, "vpg": 32, "dqn": 1, "td3": 1}
"""Steps of a rollout."""
AT_ONCE = {"dqn": {"learning_starts": 1}, "td3": {"update_after": 0, "start_steps": 0}}
"""Fields that let learning start with the first iteration."""
ITERATIONS = 5


def config_of(algorithm: str, num_envs: int, replay: int) -> Any:
    """The algorithm's defaults in that many environments."""
    config = registry.config(algorithm)(num_envs=num_envs, num_steps=STEPS[algorithm])
    return replace(config, replay_capacity=replay) if hasattr(config, "replay_capacity") else config


def compiled(algorithm: str, backend: str, config: Any, length: int = 1) -> tuple[Any, Any]:
    """The program of `length` iterations, and the shapes of its state."""
    import jax

    from benchback import envs

    make, found = registry.load(algorithm, backend)
    agent = make(config, envs.make(f"gymnax/{TASKS[algorithm]}", config.num_envs, "jax"))
    if found.functional is not None:
        agent = found.functional(agent)
    state = jax.eval_shape(agent.init, agent.key(0), agent.hyper)

    def one(state: Any, _: None) -> Any:
        return agent.update(*agent.rollout(state))

    def iterate(state: Any) -> Any:
        return one(state, None) if length == 1 else jax.lax.scan(one, state, length=length)

    return jax.jit(iterate, donate_argnums=0).lower(state).compile(), state


def state_bytes(state: Any) -> int:
    """Bytes of all arrays but random keys, which are a few."""
    import jax

    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state) if hasattr(x.dtype, "itemsize"))


def copies(text: str, least: int) -> list[str]:
    """Shapes of the arrays of at least that many elements that an optimised program copies, one for each copy."""
    shapes = re.findall(r"= \w+\[([\d,]+)\]\S* copy\(", text)
    return [shape for shape in shapes if math.prod(map(int, shape.split(","))) >= least]


def compiled_row(algorithm: str, backend: str, num_envs: int, replay: int) -> str:
    """A line of the table of compiled programs."""
    config = config_of(algorithm, num_envs, replay)
    program, state = compiled(algorithm, backend, config)
    memory, held = program.memory_analysis(), state_bytes(state)
    capacity = getattr(config, "replay_capacity", 0)
    copied = str(len(copies(program.as_text(), capacity))) if capacity else "-"
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
    peak -= memory.alias_size_in_bytes
    return (
        f"| {algorithm} | {num_envs:,} | {capacity:,} | {held / 1e6:.1f} | {memory.alias_size_in_bytes / held:.1%} | "
        f"{memory.temp_size_in_bytes / 1e6:.1f} | {peak / 1e6:.1f} | {peak / num_envs:,.0f} | {copied} |"
    )


def measure(algorithm: str, backend: str, num_envs: int, replay: int) -> dict[str, float]:
    """Of a few iterations in this process, in the backend's best mode: bytes of the state, and of the peak."""
    from benchback import envs
    from benchback.agent import start
    from benchback.training import advance
    from benchback.training.run import Run, build

    config = replace(config_of(algorithm, num_envs, replay), **AT_ONCE.get(algorithm, {}))
    suite = "torch" if registry.BACKENDS[backend].family == "torch" else "gymnax"
    env = f"{suite}/{TASKS[algorithm]}"
    agent, _ = build(Run(config=config, backend=backend, env=env, mode="best", unit="phase"))
    envs.make(env, 1, registry.BACKENDS[backend].family)
    before = status_bytes("VmRSS")
    state = start(agent, 0)
    held = 0
    for array in arrays(state):
        held += array.nbytes
        if hasattr(array, "add_") and array.is_floating_point():
            # Pages of zeros that nobody has written are not resident yet.
            array.data.add_(0)
    for _ in range(ITERATIONS):
        state, _ = advance(agent, state)
        Path("/proc/self/clear_refs").write_text("5")
    state, _ = advance(agent, state)
    return {"state": held, "peak": status_bytes("VmHWM") - before}


def arrays(tree: Any) -> list[Any]:
    """Arrays of a state of any framework."""
    if hasattr(tree, "nbytes"):
        return [tree]
    if hasattr(tree, "parameters"):
        return [*tree.parameters()]
    if isinstance(tree, dict):
        return [x for part in tree.values() for x in arrays(part)]
    if hasattr(tree, "__dataclass_fields__"):
        return [x for name in tree.__dataclass_fields__ for x in arrays(getattr(tree, name))]
    return [x for part in tree for x in arrays(part)] if isinstance(tree, (list, tuple)) else []


def status_bytes(name: str) -> int:
    """A field of this process's status."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024


def measured_row(algorithm: str, backend: str, num_envs: int, replay: int) -> str:
    """A line of the table of processes."""
    asked = [algorithm, backend, str(num_envs), str(replay)]
    done = subprocess.run([sys.executable, __file__, "--one", *asked], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    capacity = replay if algorithm in AT_ONCE else 0
    return f"| {algorithm} | {num_envs:,} | {capacity:,} | {found['state'] / 1e6:.1f} | {found['peak'] / 1e6:.1f} |"


COMPILED = (
    "| algorithm | environments | replay | state MB | of it aliased | temporaries MB | peak MB | peak bytes per "
    "environment | copies of the replay |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)
MEASURED = "| algorithm | environments | replay | state MB | resident at most, MB |\n|---|---:|---:|---:|---:|"


def main() -> None:
    """Print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--replay", type=int, default=1_000_000)
    parser.add_argument("--backend", default="purejax")
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.one:
        print(json.dumps(measure(*flags.one[:2], *map(int, flags.one[2:]))))
        return
    row = measured_row if flags.measured else compiled_row
    print(MEASURED if flags.measured else COMPILED)
    for algorithm in TASKS:
        for num_envs in flags.envs:
            print(row(algorithm, flags.backend, num_envs, flags.replay), flush=True)


if __name__ == "__main__":
    main()
