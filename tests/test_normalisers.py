"""Gaussian policies and running statistics: the twins against SciPy, two passes over all data, and each other."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchback.math import jax as jax_math
from benchback.math import torch as torch_math

some = settings(max_examples=25, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
TWINS = {"jax": jax_math, "torch": torch_math}
twins = pytest.mark.parametrize("math", TWINS.values(), ids=TWINS)


def place(math: ModuleType, x: Any) -> Any:
    """Numbers as a float32 array of the twin; flags as they are."""
    x = np.asarray(x)
    x = x if x.dtype == bool else x.astype(np.float32)
    return jnp.asarray(x) if math is jax_math else torch.tensor(x)


def empty(math: ModuleType, *shape: int) -> Any:
    return math.no_moments(shape, jnp.dtype("float32") if math is jax_math else torch.float32)


def near(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=tolerance, atol=tolerance)


# Gaussian policies.


@twins
@some
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_gaussian_log_prob_and_entropy_equal_scipy_s(math: ModuleType, seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    mean, log_std = scale * random.normal(size=(7, 3)), random.uniform(-2, 1, size=3)
    action = mean + np.exp(log_std) * random.normal(size=(7, 3))
    mean, log_std, action = (x.astype(np.float32).astype(float) for x in (mean, log_std, action))
    params = math.gaussian.parameters(place(math, mean), place(math, log_std))
    expected: Any = stats.norm(mean, np.exp(log_std))
    near(math.gaussian.log_prob(params, place(math, action)), expected.logpdf(action).sum(-1), 2e-5 * scale + 1e-5)
    near(math.gaussian.entropy(params), expected.entropy().sum(-1))
    near(math.gaussian.greedy(params), mean)


@twins
def test_gaussian_samples_have_the_asked_mean_and_spread(math: ModuleType) -> None:
    mean, log_std = np.array([1.0, -2.0]), np.array([-1.0, 0.5])
    source = jax.random.key(0) if math is jax_math else torch.Generator().manual_seed(0)
    dtype = jnp.dtype("float32") if math is jax_math else torch.float32
    noise = math.gaussian.noise(source, (20_000, 2), dtype)
    params = math.gaussian.parameters(place(math, np.tile(mean, (20_000, 1))), place(math, log_std))
    action = np.asarray(math.gaussian.sample(params, noise))
    for i in range(2):
        assert stats.kstest(action[:, i], stats.norm(mean[i], np.exp(log_std[i])).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.03


# Running statistics.


@twins
@some
@given(seed=seeds, num_batches=st.sampled_from([1, 2, 5]), offset=st.sampled_from([0.0, 30.0]))
def test_updating_batch_by_batch_equals_two_passes_over_everything(
    math: ModuleType, seed: int, num_batches: int, offset: float
) -> None:
    random = np.random.default_rng(seed)
    scale, shift = random.uniform(0.1, 5, size=3), offset * random.normal(size=3)
    batches = [scale * random.normal(size=(4, 2, 3)) + shift + random.normal() for _ in range(num_batches)]
    moments = empty(math, 3)
    for batch in batches:
        moments = math.update_moments(moments, place(math, batch))
    rows = np.concatenate(batches).astype(np.float32).astype(float).reshape(-1, 3)
    assert moments.count == len(rows)
    near(moments.mean, rows.sum(0) / len(rows))
    np.testing.assert_allclose(moments.variance, ((rows - rows.mean(0)) ** 2).sum(0) / len(rows), rtol=1e-3)


@twins
def test_statistics_are_of_features_and_not_of_environments(math: ModuleType) -> None:
    """The shape tells, and so does data in which all spread is between environments."""
    obs = np.tile(np.array([[0.0, 1.0], [4.0, 1.0], [8.0, 1.0]]), (5, 1, 1))
    moments = math.update_moments(empty(math, 2), place(math, obs))
    assert moments.mean.shape == moments.variance.shape == (2,)
    near(moments.mean, [4.0, 1.0])
    near(moments.variance, [32 / 3, 0.0])


@twins
def test_binary_observations_are_counted_and_normalised(math: ModuleType) -> None:
    obs = place(math, np.array([[[True, False]], [[False, False]]]))
    moments = math.update_moments(empty(math, 2), obs)
    near(moments.mean, [0.5, 0.0])
    near(math.normalise(obs, moments)[:, 0], [[1.0, 0.0], [-1.0, 0.0]], 1e-4)


@twins
def test_what_the_moments_are_of_is_normalised_to_mean_zero_and_deviation_one(math: ModuleType) -> None:
    x = np.random.default_rng(0).normal(size=(50, 4, 3)) * [0.01, 1, 300] + [5, 0, -900]
    moments = math.update_moments(empty(math, 3), place(math, x))
    seen = np.asarray(math.normalise(place(math, x), moments)).reshape(-1, 3)
    near(seen.mean(0), 0, 1e-2)
    near(seen.std(0), 1, 1e-3)
    before = place(math, x * [100, 1, 0.01])
    near(math.normalise(before, empty(math, 3)), np.clip(x * [100, 1, 0.01], -10, 10), 1e-4)


@twins
def test_numbers_are_clipped_at_ten_deviations_and_rescaled_ones_keep_their_sign(math: ModuleType) -> None:
    moments = empty(math)._replace(mean=place(math, 3.0), variance=place(math, 4.0))
    x = place(math, [-500.0, 0.0, 3.0, 5.0, 500.0])
    near(math.normalise(x, moments), [-10, -1.5, 0, 1, 10])
    near(math.rescale(x, moments), [-10, 0, 1.5, 2.5, 10])


def naive_discounted_return(reward: np.ndarray, done: np.ndarray, before: np.ndarray, gamma: float) -> np.ndarray:
    """The sum over the steps of the episode so far, each discounted by its age."""
    result = np.zeros(reward.shape)
    for t, e in np.ndindex(reward.shape):
        ends = [k for k in range(t) if done[k, e]]
        start = ends[-1] + 1 if ends else 0
        result[t, e] = sum(gamma ** (t - k) * reward[k, e] for k in range(start, t + 1))
        result[t, e] += 0 if ends else gamma ** (t + 1) * before[e]
    return result


@twins
@some
@given(seed=seeds, num_steps=st.sampled_from([1, 2, 9, 20]), end=st.sampled_from([0.0, 0.3, 1.0]))
def test_discounted_return_starts_afresh_with_each_episode(
    math: ModuleType, seed: int, num_steps: int, end: float
) -> None:
    random = np.random.default_rng(seed)
    reward, before = random.normal(size=(num_steps, 3)), random.normal(size=3)
    done = random.random((num_steps, 3)) < end
    gamma = place(math, 0.9)
    found = math.discounted_return(*(place(math, x) for x in (reward, done, before)), gamma=gamma)
    near(found, naive_discounted_return(reward, done, before, 0.9))


@some
@given(seed=seeds)
def test_twins_keep_the_same_statistics(seed: int) -> None:
    random = np.random.default_rng(seed)
    found = []
    batches = [random.normal(size=(6, 2, 3)) * random.uniform(0.1, 9) for _ in range(3)]
    for math in TWINS.values():
        moments = empty(math, 3)
        for batch in batches:
            moments = math.update_moments(moments, place(math, batch))
        seen = math.normalise(place(math, batches[0]), moments), math.rescale(place(math, batches[1]), moments)
        found.append([np.asarray(x) for x in (*moments, *seen)])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype == np.float32
        near(ours, theirs, 2e-6)
