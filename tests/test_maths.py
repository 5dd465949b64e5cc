"""The JAX maths against naive loops in float64 NumPy, over random shapes and episode boundaries."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchback.math import jax as math
from benchback.math.jax import shuffles

# A new shape is a new program: few shapes, many values, and no deadline for an example.
some = settings(max_examples=30, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
steps = st.sampled_from([1, 2, 9, 20])
widths = st.sampled_from([1, 3])
sizes = st.sampled_from([1, 2, 7, 50])


def near(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=tolerance, atol=tolerance)


def float32(x: object) -> jax.Array:
    return jnp.asarray(x, jnp.float32)


# Returns.


def naive_gae(
    reward: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    terminated: np.ndarray,
    done: np.ndarray,
    gamma: float,
    lam: float,
) -> np.ndarray:
    """The sum of (gamma lambda)^k delta over the rest of the episode: equation 16 as it stands."""
    num_steps, num_envs = reward.shape
    result = np.zeros(reward.shape)
    for t in range(num_steps):
        for e in range(num_envs):
            for k in range(t, num_steps):
                following = 0.0 if terminated[k, e] else next_value[k, e]
                delta = reward[k, e] + gamma * following - value[k, e]
                result[t, e] += (gamma * lam) ** (k - t) * delta
                if done[k, e]:
                    break
    return result


@some
@given(steps, widths, seeds, st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.0, 0.2, 1.0]))
def test_gae_is_the_sum_of_discounted_errors_within_an_episode(
    num_steps: int, num_envs: int, seed: int, gamma: float, lam: float, ending: float
) -> None:
    random = np.random.default_rng(seed)
    reward, value, next_value = random.normal(size=(3, num_steps, num_envs))
    terminated, truncated = random.random((2, num_steps, num_envs)) < ending
    done = terminated | truncated
    found = math.gae(
        float32(reward),
        float32(value),
        float32(next_value),
        jnp.asarray(terminated),
        jnp.asarray(done),
        gamma=float32(gamma),
        lam=float32(lam),
    )
    near(found, naive_gae(reward, value, next_value, terminated, done, gamma, lam))


def test_gae_bootstraps_through_truncation_and_not_through_termination() -> None:
    shape = (1, 3)
    zero, next_value = jnp.zeros(shape), jnp.full(shape, 10.0)
    terminated = jnp.array([[True, False, True]])
    truncated = jnp.array([[False, True, True]])
    half = float32(0.5)
    found = math.gae(zero, zero, next_value, terminated, terminated | truncated, gamma=half, lam=half)
    near(found, [[0, 5, 0]])


def naive_rewards_to_go(
    reward: np.ndarray, next_value: np.ndarray, terminated: np.ndarray, done: np.ndarray, gamma: float
) -> np.ndarray:
    """The sum of gamma^k r over the rest of the episode, and of the value after its last step where it is cut."""
    num_steps, num_envs = reward.shape
    result = np.zeros(reward.shape)
    for t in range(num_steps):
        for e in range(num_envs):
            last = next((k for k in range(t, num_steps) if done[k, e]), num_steps - 1)
            result[t, e] = sum(gamma ** (k - t) * reward[k, e] for k in range(t, last + 1))
            result[t, e] += 0.0 if terminated[last, e] else gamma ** (last + 1 - t) * next_value[last, e]
    return result


@some
@given(steps, widths, seeds, st.floats(0, 1), st.sampled_from([0.0, 0.2, 1.0]))
def test_rewards_to_go_are_summed_to_the_end_of_the_episode_and_bootstrap_where_it_is_cut(
    num_steps: int, num_envs: int, seed: int, gamma: float, ending: float
) -> None:
    random = np.random.default_rng(seed)
    reward, next_value = random.normal(size=(2, num_steps, num_envs))
    terminated, truncated = random.random((2, num_steps, num_envs)) < ending
    flags = terminated, terminated | truncated
    found = math.rewards_to_go(float32(reward), float32(next_value), *map(jnp.asarray, flags), gamma=float32(gamma))
    near(found, naive_rewards_to_go(reward, next_value, *flags, gamma))


@some
@given(steps, widths, seeds)
def test_successor_value_is_the_final_one_where_truncated(num_steps: int, num_envs: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    value, final_value = random.normal(size=(2, num_steps, num_envs))
    last_value = random.normal(size=num_envs)
    truncated = random.random((num_steps, num_envs)) < 0.5
    found = math.successor_value(float32(value), float32(last_value), float32(final_value), jnp.asarray(truncated))
    expected = np.zeros(value.shape)
    for t in range(num_steps):
        for e in range(num_envs):
            following = last_value[e] if t == num_steps - 1 else value[t + 1, e]
            expected[t, e] = final_value[t, e] if truncated[t, e] else following
    near(found, expected)


@some
@given(steps, widths, seeds)
def test_mean_where_averages_the_masked_and_is_undefined_without(num_steps: int, num_envs: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_steps, num_envs))
    mask = random.random(x.shape) < 0.5
    expected = x[mask].mean() if mask.any() else np.nan
    near(math.mean_where(float32(x), jnp.asarray(mask)), expected)


# Losses.


@some
@given(st.sampled_from([2, 7, 50]), seeds, st.floats(0.01, 100))
def test_standardise_divides_by_the_population_deviation(size: int, seed: int, scale: float) -> None:
    x = scale * np.random.default_rng(seed).normal(size=size)
    mean = sum(x) / size
    deviation = (sum((x - mean) ** 2) / size) ** 0.5
    near(math.standardise(float32(x)), (x - mean) / (deviation + 1e-8), 1e-4)


def test_standardise_of_a_constant_is_zero() -> None:
    near(math.standardise(jnp.full(8, 3.0)), np.zeros(8))


@some
@given(sizes, seeds, st.floats(0.05, 0.5))
def test_policy_losses_equal_a_loop(size: int, seed: int, clip: float) -> None:
    random = np.random.default_rng(seed)
    log_ratio, advantage = random.normal(size=(2, size))
    surrogate, divergence, outside = [], [], []
    for logarithm, gain in zip(log_ratio, advantage, strict=True):
        ratio = np.exp(logarithm)
        surrogate.append(min(ratio * gain, min(max(ratio, 1 - clip), 1 + clip) * gain))
        divergence.append(ratio - 1 - logarithm)
        outside.append(ratio < 1 - clip or ratio > 1 + clip)
    near(math.clipped_surrogate(float32(log_ratio), float32(advantage), float32(clip)), -np.mean(surrogate))
    near(math.approximate_kl(float32(log_ratio)), np.mean(divergence))
    near(math.clip_fraction(float32(log_ratio), float32(clip)), np.mean(outside))


@some
@given(sizes, seeds, st.floats(0.05, 0.5))
def test_clipped_value_loss_takes_the_worse_of_both_errors(size: int, seed: int, clip: float) -> None:
    value, old, target = np.random.default_rng(seed).normal(size=(3, size))
    worse = []
    for v, v_old, aim in zip(value, old, target, strict=True):
        clipped = min(max(v, v_old - clip), v_old + clip)
        worse.append(max((v - aim) ** 2, (clipped - aim) ** 2))
    found = math.clipped_value_loss(float32(value), float32(old), float32(target), float32(clip))
    near(found, np.mean(worse) / 2)


# The categorical distribution.


@some
@given(st.sampled_from([1, 7]), st.sampled_from([2, 6]), seeds, st.sampled_from([0.1, 1.0, 30.0]))
def test_log_prob_entropy_and_greedy_equal_a_loop(size: int, num_actions: int, seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    logits = scale * random.normal(size=(size, num_actions))
    action = random.integers(num_actions, size=size)
    log_prob, entropy = np.zeros(size), np.zeros(size)
    for i in range(size):
        shifted = logits[i] - max(logits[i])
        total = sum(np.exp(shifted))
        log_prob[i] = shifted[action[i]] - np.log(total)
        entropy[i] = -sum(np.exp(x) / total * (x - np.log(total)) for x in shifted)
    near(math.categorical.log_prob(float32(logits), jnp.asarray(action, jnp.int32)), log_prob)
    near(math.categorical.entropy(float32(logits)), entropy)
    assert math.categorical.greedy(float32(logits)).tolist() == logits.argmax(-1).tolist()


def test_sample_is_the_action_with_the_largest_perturbed_logit() -> None:
    logits, noise = np.random.default_rng(0).normal(size=(2, 100, 5))
    found = math.categorical.sample(float32(logits), float32(noise))
    assert found.tolist() == [int(np.argmax(row)) for row in logits + noise]


def test_samples_follow_the_softmax() -> None:
    logits = np.array([0.0, 1.0, -1.0, 2.0])
    noise = math.categorical.noise(jax.random.key(0), (20_000, 4), jnp.dtype("float32"))
    action = math.categorical.sample(jnp.broadcast_to(float32(logits), (20_000, 4)), noise)
    observed = np.bincount(action, minlength=4)
    assert stats.chisquare(observed, 20_000 * np.exp(logits) / np.exp(logits).sum()).pvalue > 0.001


def test_gumbel_noise_is_standard() -> None:
    noise = np.asarray(math.categorical.noise(jax.random.key(1), (5_000,), jnp.dtype("float32")))
    assert stats.kstest(noise, stats.gumbel_r.cdf).pvalue > 0.001


# Schedules and the optimiser.


@pytest.mark.parametrize("count", range(13))
def test_linear_anneal_goes_one_step_down_per_iteration(count: int) -> None:
    found = math.linear_anneal(float32(0.5), jnp.asarray(count), steps_per_iteration=3, num_iterations=4)
    near(found, [0.5, 0.375, 0.25, 0.125, 0.0][count // 3])


def naive_adam(x: np.ndarray, gradients: np.ndarray, hyper: SimpleNamespace, *, anneal: bool) -> np.ndarray:
    """Three gradient steps per iteration, four iterations."""
    mean = variance = np.zeros_like(x)
    for k, g in enumerate(gradients):
        length = np.sqrt(sum(entry**2 for entry in g))
        g = g * hyper.max_grad_norm / length if length > hyper.max_grad_norm else g
        mean = hyper.adam_beta1 * mean + (1 - hyper.adam_beta1) * g
        variance = hyper.adam_beta2 * variance + (1 - hyper.adam_beta2) * g**2
        rate = hyper.learning_rate * (1 - (k // 3) / 4 if anneal else 1)
        step = mean / (1 - hyper.adam_beta1 ** (k + 1))
        x = x - rate * step / (np.sqrt(variance / (1 - hyper.adam_beta2 ** (k + 1))) + hyper.adam_epsilon)
    return x


@pytest.mark.parametrize("anneal", [True, False])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_adam_with_clipping_equals_a_loop(anneal: bool, scale: float) -> None:
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=7), scale * random.normal(size=(12, 7))
    hyper = SimpleNamespace(learning_rate=0.1, adam_beta1=0.9, adam_beta2=0.99, adam_epsilon=1e-5, max_grad_norm=0.5)
    data = SimpleNamespace(**{name: float32(x) for name, x in vars(hyper).items()})
    optimiser = math.adam(anneal=anneal, steps_per_iteration=3, num_iterations=4)
    # Two leaves: the norm that is clipped must span them.
    params = float32(start[:3]), float32(start[3:])
    state = optimiser.init(params)
    for count, g in enumerate(gradients):
        gradient = float32(g[:3]), float32(g[3:])
        step, state = optimiser.update(gradient, state, count=jnp.asarray(count), hyper=data)
        params = jax.tree.map(jnp.add, params, step)
    near(np.concatenate(params), naive_adam(start, gradients, hyper, anneal=anneal))


# Shuffles.


@cache
def shuffles_in_numpy() -> ModuleType:
    """The same source to be run on NumPy arrays: XLA would compile a program for every size."""
    spec = spec_from_file_location("shuffles_in_numpy", shuffles.__file__)
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.jnp = np
    module.jax = SimpleNamespace(
        random=SimpleNamespace(bits=lambda *arguments: np.asarray(jax.random.bits(*arguments))),
        lax=SimpleNamespace(while_loop=while_loop),
    )
    return module


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], x: Any) -> Any:
    while condition(x):
        x = body(x)
    return x


@pytest.mark.parametrize("sizes", [range(1, 301), (1000, 4095, 4097, 8192, 12_345, 100_000)], ids=["small", "big"])
def test_permutation_holds_every_index_once(sizes: Sequence[int]) -> None:
    for size in sizes:
        for seed in range(3):
            found = shuffles_in_numpy().permutation(jax.random.key(seed), size)
            assert np.array_equal(np.sort(found), np.arange(size)), (size, seed)


@pytest.mark.parametrize("size", [1, 2, 3, 64, 100, 257, 4097])
def test_compiled_permutation_equals_the_one_in_numpy(size: int) -> None:
    key = jax.random.key(size)
    found = np.asarray(jax.jit(math.permutation, static_argnums=1)(key, size))
    assert np.array_equal(found, shuffles_in_numpy().permutation(key, size))


@pytest.fixture(scope="module")
def orders() -> np.ndarray:
    """Many epochs of one small batch, `[draws, epochs, rows]`."""
    draw = jax.vmap(lambda key: math.minibatch_indices(key, batch_size=12, num_epochs=2, num_minibatches=3))
    return np.asarray(draw(jax.random.split(jax.random.key(0), 6_000))).reshape(6_000, 2, 12)


def test_every_row_serves_once_per_epoch(orders: np.ndarray) -> None:
    assert np.array_equal(np.sort(orders, axis=-1), np.broadcast_to(np.arange(12), orders.shape))


def test_minibatches_have_the_asked_shape() -> None:
    found = math.minibatch_indices(jax.random.key(0), batch_size=24, num_epochs=3, num_minibatches=4)
    assert found.shape == (12, 6)


def test_every_row_is_equally_likely_in_every_place(orders: np.ndarray) -> None:
    table = np.array([np.bincount(orders[:, 0, place], minlength=12) for place in range(12)])
    # Rows and columns of the table have fixed sums, hence 11 x 11 degrees of freedom, and the factor.
    statistic = ((table - 500) ** 2 / 500).sum() * 11 / 12
    assert stats.chi2.sf(statistic, 11 * 11) > 0.001


def test_successive_epochs_are_independent(orders: np.ndarray) -> None:
    for row in (0, 5, 11):
        place = (orders == row).argmax(-1)
        table = np.zeros((12, 12))
        np.add.at(table, (place[:, 0], place[:, 1]), 1)
        test: Any = stats.chi2_contingency(table)
        assert test.pvalue > 0.001


def test_neighbours_in_the_batch_are_not_neighbours_in_the_order(orders: np.ndarray) -> None:
    """Rows of one environment lie a fixed distance apart; a weak shuffle would keep them so."""
    for distance in (1, 4):
        apart = (np.diff(orders[:, 0], axis=-1) % 12 == distance).sum()
        # 11 pairs per order; a given difference modulo 12 has probability 1/11 (it is never 0).
        assert stats.binomtest(int(apart), 6_000 * 11, 1 / 11).pvalue > 0.001


def test_different_keys_give_different_orders() -> None:
    found = {tuple(np.asarray(math.permutation(jax.random.key(i), 64))) for i in range(50)}
    assert len(found) == 50


def primitives(jaxpr: Any) -> set[str]:
    """Names of all primitives, those of inner programs included."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            found |= primitives(getattr(inner, "jaxpr", inner)) if hasattr(inner, "eqns") else set()
    return found


@pytest.mark.parametrize("size", [64, 100])
def test_shuffle_does_not_sort(size: int) -> None:
    def shuffle(key: jax.Array) -> jax.Array:
        return math.minibatch_indices(key, batch_size=size, num_epochs=2, num_minibatches=4)

    assert "sort" not in primitives(jax.make_jaxpr(shuffle)(jax.random.key(0)).jaxpr)
    sorting = jax.make_jaxpr(lambda key: jax.random.permutation(key, size))(jax.random.key(0))
    assert "sort" in primitives(sorting.jaxpr)


@some
@given(sizes, seeds)
def test_take_gives_the_asked_rows_of_every_array(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    data = {"x": random.normal(size=(size, 3)).astype(np.float32), "y": random.integers(9, size=size)}
    index = random.permutation(size)[: max(1, size // 2)]
    found = math.take(jax.tree.map(jnp.asarray, data), jnp.asarray(index))
    for name, x in data.items():
        assert np.array_equal(found[name], x[index].astype(found[name].dtype))
