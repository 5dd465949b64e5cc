"""Memory of whole trainings: every state is written in place, no replay is copied, nothing grows with time."""

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
import torch
from representatives import representatives

from benchback import registry
from benchback.agent import start
from benchback.measure.peers.sides import BASELINES
from benchback.training import advance
from benchback.training.run import Run, build

sys.path.append(str(BASELINES))
import memory  # pyright: ignore[reportMissingImports]

JAX_FAMILY = [name for name, spec in registry.BACKENDS.items() if spec.family == "jax"]
ENVS, CAPACITY = 16, 50_000
STEPS = {"ppo": 32, "vpg": 32, "dqn": 1, "td3": 1}
SMALL = {
    "ppo": {"num_minibatches": 2, "num_epochs": 1},
    "vpg": {"num_value_steps": 2},
    "dqn": {"learning_starts": 1, "minibatch_size": 4, "replay_capacity": CAPACITY},
    "td3": {"update_after": 0, "start_steps": 0, "num_updates": 2, "minibatch_size": 4, "replay_capacity": CAPACITY},
}


def config_of(algorithm: str, **fields: Any) -> Any:
    """A small agent that learns from its first iteration on."""
    sizes = {"num_envs": ENVS, "num_steps": STEPS[algorithm], "hidden_sizes": (8,)}
    return registry.config(algorithm)(**(sizes | SMALL[algorithm] | fields))


# One of them with a replay; the others take some seconds of compilation each.
FAST = {("td3", "nnx")}
EVERY = [
    pytest.param(algorithm, name, marks=[] if (algorithm, name) in FAST else [pytest.mark.slow])
    for algorithm in SMALL
    for name in JAX_FAMILY
]


@pytest.mark.parametrize(("algorithm", "name"), EVERY)
def test_a_training_writes_its_whole_state_in_place(algorithm: str, name: str) -> None:
    """Of three iterations as one program: outputs alias inputs, and beside them is no room for a second replay."""
    config = config_of(algorithm)
    program, state = memory.compiled(algorithm, name, config, length=3)
    found, held = program.memory_analysis(), memory.state_bytes(state)
    # Random keys are not counted among the state's bytes.
    assert 0 <= found.alias_size_in_bytes - held <= 64
    if hasattr(config, "replay_capacity"):
        assert memory.copies(program.as_text(), CAPACITY) == []
        assert found.temp_size_in_bytes < CAPACITY
    else:
        # The loop of a rollout starts with buffers of its own; what is in them is not copied again.
        transitions = f"{config.num_steps},{config.num_envs},4"
        assert memory.copies(program.as_text(), config.batch_size).count(transitions) <= 1


def test_a_copy_is_seen_in_a_program() -> None:
    def keeping(x: Any) -> tuple[Any, Any]:
        return x.at[3].set(1.0), x

    program = jax.jit(keeping, donate_argnums=0).lower(jax.ShapeDtypeStruct((CAPACITY, 2), "float32")).compile()
    assert memory.copies(program.as_text(), CAPACITY).count(f"{CAPACITY},2") >= 1
    assert memory.copies(program.as_text(), 2 * CAPACITY + 1) == []


def trained(algorithm: str, name: str) -> Callable[[int], None]:
    """A function that goes on training for that many iterations."""
    suite = "torch" if registry.BACKENDS[name].family == "torch" else "gymnax"
    mode = "none" if suite == "torch" else "best"
    fields = {"num_steps": 2, "num_envs": 2, "num_iterations": 20_000}
    config = config_of(algorithm, **fields)
    if hasattr(config, "replay_capacity"):
        config = replace(config, replay_capacity=500)
    run = Run(config=config, backend=name, env=f"{suite}/{memory.TASKS[algorithm]}", mode=mode, unit="iteration")
    agent, backend = build(run)
    state = start(agent, 0)

    def go_on(iterations: int) -> None:
        nonlocal state
        for _ in range(iterations):
            state, metrics = advance(agent, state)
        backend.block(metrics)

    return go_on


def living() -> int:
    """Arrays of JAX and tensors of torch that somebody still holds."""
    gc.collect()
    return len(jax.live_arrays()) + sum(isinstance(x, torch.Tensor) for x in gc.get_objects())


def resident_bytes() -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


GROWN_BYTES = 4_000_000
"""500 bytes for each of 8,000 iterations, beyond what the allocator had free: 10 kB each are noticed, 1 kB not."""


def growth(go_on: Callable[[int], None]) -> tuple[int, int]:
    """Arrays and bytes after 10,000 iterations that were not there after 2,000."""
    go_on(2_000)
    arrays, resident = living(), resident_bytes()
    go_on(8_000)
    return living() - arrays, resident_bytes() - resident


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SMALL)
@pytest.mark.parametrize("name", representatives())
def test_ten_thousand_iterations_leave_nothing_behind(algorithm: str, name: str) -> None:
    arrays, resident = growth(trained(algorithm, name))
    assert arrays == 0
    assert resident < GROWN_BYTES


@pytest.mark.slow
def test_what_is_left_behind_is_noticed() -> None:
    go_on, kept = trained("vpg", "purejax"), []

    def leaking(iterations: int) -> None:
        go_on(iterations)
        kept.extend(bytearray(10_000) for _ in range(iterations))
        kept.append(jax.numpy.zeros(iterations))

    arrays, resident = growth(leaking)
    assert arrays == 1
    assert resident > GROWN_BYTES
