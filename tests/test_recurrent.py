"""Recurrent PPO: the oracle is right, every backend computes what it computes, and mistakes about memory are caught."""

import numpy as np
import pytest

from benchback.agent import Weights
from benchback.algorithms.ppo.recurrent.sequences import Sequences
from benchback.parity.oracle import parameters, widened
from benchback.parity.ppo import recurrent_cases as cases
from benchback.parity.ppo import recurrent_oracle as oracle

# The oracle.

DIFFERENCES = 12
"""Entries of an array whose gradient is compared."""


def numerical_gradient(case: cases.Case, sequences: Sequences) -> Weights:
    """Central differences of the loss by some weights of every array, drawn at random; NaN elsewhere."""
    random = np.random.default_rng(0)

    def loss(name: str, index: tuple[int, ...], step: float) -> float:
        moved = case.weights[name].copy()
        moved[index] += step
        return oracle.objective(case.weights | {name: moved}, sequences, case.config)[0]["loss"]

    result = {name: np.full_like(x, np.nan) for name, x in parameters(case.weights).items()}
    for name, gradient in result.items():
        chosen = random.choice(gradient.size, min(gradient.size, DIFFERENCES), replace=False)
        for index in zip(*np.unravel_index(chosen, gradient.shape), strict=True):
            gradient[index] = (loss(name, index, 1e-6) - loss(name, index, -1e-6)) / 2e-6
    return result


@pytest.mark.parametrize("case", [*cases.single_steps()[:2], cases.single_steps("box")[0]])
def test_oracle_gradient_through_time_equals_finite_differences(case: cases.Case) -> None:
    sequences = Sequences(*map(widened, case.sequences))
    assert sequences.done[:-1].any()
    _, found = oracle.objective(case.weights, sequences, case.config)
    expected = numerical_gradient(case, sequences)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        compared = ~np.isnan(gradient)
        assert compared.sum() == min(gradient.size, DIFFERENCES)
        np.testing.assert_allclose(found[name][compared], gradient[compared], atol=5e-9)


def test_oracle_forgets_at_the_end_of_an_episode_and_nowhere_else() -> None:
    random = np.random.default_rng(0)
    weights = cases.network(random)
    sequences = cases.near(weights, random)
    done = np.zeros((4, 1), bool)
    done[1] = True
    obs, memory = sequences.obs[:4, :1], sequences.memory[:1]
    found = oracle.remembered(weights, obs, done, memory)[0]
    other = oracle.remembered(weights, obs, done, -memory)[0]
    first = oracle.remembered(weights, obs[2:], done[2:], 0 * memory)[0]
    assert (np.abs(found - other)[:2] > 1e-3).any((1, 2)).all()
    np.testing.assert_array_equal(found[2:], other[2:])
    np.testing.assert_array_equal(found[2:], first)


def test_sequences_take_every_branch() -> None:
    random = np.random.default_rng(0)
    weights = cases.network(random)
    near, far = cases.near(weights, random), cases.far(weights, random)
    limit = cases.BASE.max_grad_norm
    assert oracle.learn(weights, near, cases.BASE)[1]["grad_norm"] < 0.9 * limit
    metrics = oracle.learn(weights, far, cases.BASE)[1]
    assert metrics["grad_norm"] > 1.2 * limit
    assert 0.1 < metrics["clip_fraction"] < 0.95
