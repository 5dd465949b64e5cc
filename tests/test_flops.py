"""The FLOPs in a ledger against the counts of XLA and of torch."""

from typing import Any

import jax
import numpy as np
import pytest

from benchback import envs, registry
from benchback.agent import start
from benchback.algorithms.fields import Rows
from benchback.algorithms.ppo.loss import example_minibatch
from benchback.measure.flops import (
    ExtraWork,
    extra_work,
    forward_flops,
    gradient_flops,
    input_gradient_flops,
    layer_sizes,
    work_ledger,
)

SIZES = {
    "ppo": {"num_envs": 8, "num_steps": 64, "num_minibatches": 2, "num_epochs": 3, "hidden_sizes": (64, 64)},
    "vpg": {"num_envs": 8, "num_steps": 4, "num_value_steps": 5, "hidden_sizes": (64, 64)},
    "dqn": {"num_envs": 8, "num_steps": 4, "num_updates": 3, "learning_starts": 1, "hidden_sizes": (64, 64)},
    "td3": {
        "num_envs": 4,
        "num_steps": 4,
        "num_updates": 4,
        "update_after": 0,
        "replay_capacity": 64,
        "hidden_sizes": (64, 64),
    },
}


def test_flops_of_a_network_layer_by_layer() -> None:
    rows, sizes = 11, ((7, 5), (5, 3))
    output, weights, inputs = (
        (2 * rows * 7 * 5, 2 * rows * 5 * 3),
        (2 * rows * 7 * 5, 2 * rows * 5 * 3),
        2 * rows * 5 * 3,
    )
    assert forward_flops(rows, sizes) == sum(output)
    assert gradient_flops(rows, sizes) == sum(output) + sum(weights) + inputs
    assert input_gradient_flops(rows, sizes) == sum(output) + inputs + 2 * rows * 7 * 5


def test_layers_of_any_network_are_found_in_their_order() -> None:
    shapes = {
        "actor/10/kernel": (8, 2),
        "actor/9/block/kernel": (8, 8),
        "actor/9/norm/scale": (8,),
        "actor/0/kernel": (4, 8),
    }
    weights = {name: np.zeros(shape) for name, shape in shapes.items()}
    assert layer_sizes(weights | {"target/actor/0/kernel": np.zeros((4, 8))}) == {"actor": [(4, 8), (8, 8), (8, 2)]}


def agent_of(algorithm: str, backend: str) -> tuple[Any, Any]:
    make, _ = registry.load(algorithm, backend)
    config = registry.config(algorithm)(**SIZES[algorithm])
    env = registry.ALGORITHMS[algorithm].env
    return make(config, envs.make(env, config.num_envs, registry.BACKENDS[backend].family)), config


def test_an_update_of_plain_jax_has_as_many_flops_as_xla_counts() -> None:
    """One gradient step of PPO; XLA also counts activations, loss and Adam, at most 5 % of a step of 512 rows."""
    agent, config = agent_of("ppo", "purejax")
    state = start(agent, 0)
    sizes = layer_sizes(agent.export(state))
    state, batch = agent.rollout(state)
    minibatch = example_minibatch(batch, config)
    counted: Any = jax.jit(agent.learn).lower(state, minibatch).compile().cost_analysis()
    expected = sum(gradient_flops(len(minibatch.action), widths) for widths in sizes.values())
    assert expected <= counted["flops"] <= 1.05 * expected, (counted["flops"], expected)


@pytest.mark.parametrize("algorithm", SIZES)
def test_an_iteration_of_pytorch_has_as_many_flops_as_torch_counts(algorithm: str) -> None:
    """torch counts products of matrices only, so its count must be equal."""
    from torch.utils.flop_counter import FlopCounterMode

    agent, config = agent_of(algorithm, "pytorch")
    state = start(agent, 0)
    sizes = layer_sizes(agent.export(state))
    with FlopCounterMode(display=False) as counter:
        state, batch = agent.rollout(state)
        agent.update(state, batch)
    ledger = work_ledger(config.network_rows, sizes, skips=False)
    assert counter.get_total_flops() == ledger["forward_flops"] + ledger["gradient_flops"]


def test_final_values_are_counted_where_they_are_always_computed() -> None:
    rows = {"actor": Rows(forward=10, gradient=20), "critic": Rows(forward=12, gradient=20, final=10)}
    sizes = {"actor": ((4, 8), (8, 2)), "critic": ((4, 8), (8, 1))}
    lean, full = (work_ledger(rows, sizes, skips=skips) for skips in (True, False))
    assert lean["final_value_rows"] == "10 when truncated"
    assert full["final_value_rows"] == "10 always"
    assert lean["network_evaluations"] == {"actor": 10, "critic": 12}
    assert full["network_evaluations"] == {"actor": 10, "critic": 22}
    assert full["gradient_flops"] == lean["gradient_flops"]
    more = forward_flops(10, sizes["critic"])
    assert full["forward_flops"] - lean["forward_flops"] == more
    share = more / (lean["forward_flops"] + lean["gradient_flops"])
    assert extra_work(full, [full, lean]) == ExtraWork(10, share)
    assert extra_work(lean, [full, lean]) is None
    assert extra_work({}, [full]) is None, "stores from before"
