"""The torch twin of the maths: the same numbers and gradients as the JAX twin."""

import inspect
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import Minibatch
from benchback.math import jax as jax_math
from benchback.math import torch as torch_math

B, A = 96, 3
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-13}
POLICY = ("log_prob", "entropy", "sample", "greedy")


def arrays(dtype: type, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arguments by the names that the functions give them; some ratios tie with 1, some are clipped."""
    random = np.random.default_rng(seed)
    log_ratio = random.normal(size=B) * 0.3 * (random.random(B) < 0.8)
    floats = {
        "logits": random.normal(size=(B, A)) * 3,
        "noise": random.gumbel(size=(B, A)),
        "log_ratio": log_ratio,
        "advantage": random.normal(size=B),
        "x": random.normal(size=B) * 5 + 2,
        "value": random.normal(size=B),
        "old_value": random.normal(size=B),
        "target": random.normal(size=B),
        "clip": np.array(0.2),
        "alpha": np.array(2.0),
        "beta": np.array(0.6),
        "weights": random.normal(size=9 * 4),
        "params": random.normal(size=(B, 2 * A)),
        "real_action": random.normal(size=(B, A)) * 2,
    }
    return {k: x.astype(dtype) for k, x in floats.items()} | {"action": random.integers(0, A, B)}


def wanted(name: str, arguments: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of the arguments that the function takes; a Gaussian's actions are real-valued."""
    if name.startswith("gaussian"):
        arguments = arguments | {"action": arguments["real_action"]}
    return {k: arguments[k] for k in inspect.signature(attrgetter(name)(jax_math)).parameters}


def both(name: str, arguments: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """The function of either twin on those of the arguments that it takes."""
    taken = wanted(name, arguments)
    with jax.enable_x64(arguments["x"].dtype == np.float64):
        ours = attrgetter(name)(jax_math)(**{k: jnp.asarray(x) for k, x in taken.items()})
        ours = np.asarray(ours)
    return attrgetter(name)(torch_math)(**{k: torch.tensor(x) for k, x in taken.items()}).numpy(), ours


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "name",
    [
        *(f"{policy}.{name}" for policy in ("categorical", "gaussian") for name in POLICY),
        "standardise",
        "clipped_surrogate",
        "drift_surrogate",
        "learned_surrogate",
        "clipped_value_loss",
        "approximate_kl",
        "clip_fraction",
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_twins_agree(name: str, dtype: type, seed: int) -> None:
    theirs, ours = both(name, arrays(dtype, seed))
    np.testing.assert_allclose(theirs, ours, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert ours.dtype.kind != "f" or theirs.dtype == ours.dtype == dtype


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("categorical.log_prob", "logits"),
        ("categorical.entropy", "logits"),
        ("gaussian.log_prob", "params"),
        ("gaussian.entropy", "params"),
        ("clipped_surrogate", "log_ratio"),
        ("drift_surrogate", "log_ratio"),
        ("learned_surrogate", "log_ratio"),
        ("clipped_value_loss", "value"),
        ("approximate_kl", "log_ratio"),
    ],
)
def test_twins_have_the_same_gradient(name: str, argument: str) -> None:
    """Also at ties: a fifth of the ratios are exactly 1, where both sides of the minimum are equal."""
    taken = wanted(name, arrays(np.float32))

    def total(x: Any) -> Any:
        fixed = {k: jnp.asarray(v) for k, v in taken.items()}
        return attrgetter(name)(jax_math)(**fixed | {argument: x}).sum()

    x = torch.tensor(taken[argument], requires_grad=True)
    tensors = {k: torch.tensor(v) for k, v in taken.items()} | {argument: x}
    attrgetter(name)(torch_math)(**tensors).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad, jax.grad(total)(jnp.asarray(taken[argument])), rtol=1e-5, atol=1e-6)


def naive_gae(reward, value, next_value, terminated, done, gamma, lam):
    """The recursion as printed, one environment and one step at a time, in float64."""
    advantage = np.zeros(reward.shape)
    for e in range(reward.shape[1]):
        following = 0.0
        for t in reversed(range(reward.shape[0])):
            delta = reward[t, e] + gamma * next_value[t, e] * (not terminated[t, e]) - value[t, e]
            following = delta + gamma * lam * (not done[t, e]) * following
            advantage[t, e] = following
    return advantage


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("length", "end"), [(1, 0.3), (2, 0.3), (7, 0.3), (16, 0.3), (37, 0.05), (256, 0.01), (255, 0.0)]
)
def test_gae_is_the_recursion(length: int, end: float, dtype: type) -> None:
    random = np.random.default_rng(length)
    reward, value, next_value = random.normal(size=(3, length, 5)).astype(dtype)
    terminated, truncated = random.random((2, length, 5)) < end
    flags = terminated, terminated | truncated
    gamma, lam = np.array(0.99, dtype), np.array(0.95, dtype)
    expected = naive_gae(reward, value, next_value, *flags, float(gamma), float(lam))
    tensors = (torch.tensor(x) for x in (reward, value, next_value, *flags))
    ours = torch_math.gae(*tensors, gamma=torch.tensor(gamma), lam=torch.tensor(lam)).numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(ours / scale, expected / scale, rtol=0, atol=TOLERANCE[dtype])
    assert ours.dtype == dtype


def naive_rewards_to_go(reward, next_value, terminated, done, gamma):
    """The recursion as printed, one environment and one step at a time, in float64."""
    result = np.zeros(reward.shape)
    for e in range(reward.shape[1]):
        following = next_value[-1, e]
        for t in reversed(range(reward.shape[0])):
            following = next_value[t, e] if done[t, e] else following
            following = result[t, e] = reward[t, e] + gamma * following * (not terminated[t, e])
    return result


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("length", "end"), [(1, 0.3), (2, 0.3), (7, 0.3), (37, 0.05), (256, 0.01), (255, 0.0)])
def test_rewards_to_go_are_the_recursion(length: int, end: float, dtype: type) -> None:
    random = np.random.default_rng(length)
    reward, next_value = random.normal(size=(2, length, 5)).astype(dtype)
    terminated, truncated = random.random((2, length, 5)) < end
    flags, gamma = (terminated, terminated | truncated), np.array(0.99, dtype)
    expected = naive_rewards_to_go(reward, next_value, *flags, float(gamma))
    tensors = (torch.tensor(x) for x in (reward, next_value, *flags))
    ours = torch_math.rewards_to_go(*tensors, gamma=torch.tensor(gamma)).numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(ours / scale, expected / scale, rtol=0, atol=TOLERANCE[dtype])
    assert ours.dtype == dtype


def test_successor_value_takes_the_final_value_at_a_time_limit() -> None:
    value, last, final = torch.arange(6.0).reshape(3, 2), torch.tensor([10.0, 11.0]), torch.full((3, 2), -1.0)
    truncated = torch.tensor([[True, False], [False, False], [False, True]])
    expected = [[-1.0, 3.0], [4.0, 5.0], [10.0, -1.0]]
    assert torch_math.successor_value(value, last, final, truncated).tolist() == expected


def test_mean_where_counts_masked_entries_only() -> None:
    x, mask = torch.tensor([[1, 2], [3, 40]], dtype=torch.int32), torch.tensor([[True, False], [True, False]])
    assert torch_math.mean_where(x, mask).item() == 2.0
    assert torch_math.mean_where(x, torch.zeros_like(mask)).isnan()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("anneal", [True, False])
@pytest.mark.parametrize("max_grad_norm", [0.5, 1e3])
def test_adam_is_the_optax_chain(dtype: type, anneal: bool, max_grad_norm: float) -> None:
    random, shapes = np.random.default_rng(0), [(4, 8), (8,), (8, 2)]
    start = [random.normal(size=shape).astype(dtype) for shape in shapes]
    gradients = [[random.normal(size=shape).astype(dtype) for shape in shapes] for _ in range(20)]
    hyper = Config(max_grad_norm=max_grad_norm).hyper
    settings = {"anneal": anneal, "steps_per_iteration": 3, "num_iterations": 10}

    optimiser = torch_math.adam(**settings)
    params = [torch.tensor(x) for x in start]
    state = optimiser.init(params)
    tensors = Hyper(*(torch.tensor(x, dtype=params[0].dtype) for x in hyper))
    for gradient in gradients:
        norm = optimiser.update([torch.tensor(g) for g in gradient], state, params, hyper=tensors)
    expected_norm = np.sqrt(sum((g.astype(float) ** 2).sum() for g in gradients[-1]))
    np.testing.assert_allclose(norm, expected_norm, rtol=1e-6)

    with jax.enable_x64(dtype == np.float64):
        reference = jax_math.adam(**settings)
        theirs: Any = [jnp.asarray(x) for x in start]
        their_state: Any = reference.init(theirs)
        their_hyper = Hyper(*(jnp.asarray(x, dtype) for x in hyper))
        for count, gradient in enumerate(gradients):
            leaves = [jnp.asarray(g) for g in gradient]
            step, their_state = reference.update(leaves, their_state, count=jnp.asarray(count), hyper=their_hyper)
            theirs = optax.apply_updates(theirs, step)
        for x, y in zip(params, theirs, strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=5 * TOLERANCE[dtype])
        moments = np.concatenate([np.ravel(m) for m in their_state.mean])
        np.testing.assert_allclose(state.mean, moments, rtol=0, atol=TOLERANCE[dtype])
    assert state.count == 20


def test_shuffles_use_every_row_once_per_epoch_in_a_new_order() -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch_math.minibatch_indices(generator, batch_size=24, num_epochs=3, num_minibatches=4)
    assert index.shape == (12, 6)
    epochs = index.reshape(3, 24)
    assert all(sorted(epoch) == list(range(24)) for epoch in epochs.tolist())
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3


def test_take_gives_rows_of_every_field() -> None:
    data = Minibatch(*(torch.arange(10) + 100 * i for i in range(6)))
    taken = torch_math.take(data, torch.tensor([7, 2]))
    assert [x.tolist() for x in taken] == [[100 * i + 7, 100 * i + 2] for i in range(6)]


def test_gumbel_noise_makes_samples_follow_the_softmax() -> None:
    generator, n = torch.Generator().manual_seed(0), 40_000
    logits = torch.tensor([0.0, 1.0, -2.0]).expand(n, 3)
    noise = torch_math.categorical.noise(generator, (n, 3), torch.float32)
    assert abs(noise.mean().item() - np.euler_gamma) < 0.02
    frequency = torch.bincount(torch_math.categorical.sample(logits, noise), minlength=3) / n
    np.testing.assert_allclose(frequency, logits[0].softmax(0), atol=0.01)


def test_nothing_asks_the_device_for_a_value() -> None:
    """Meta tensors have none: whatever waits for one or branches on it fails."""
    with torch.device("meta"):
        params = [torch.zeros(3, 2), torch.zeros(3)]
        hyper = Hyper(*(torch.zeros(()) for _ in Hyper._fields))
        optimiser = torch_math.adam(anneal=True, steps_per_iteration=2, num_iterations=3)
        optimiser.update(params, optimiser.init(params), params, hyper=hyper)
        x, flag = torch.zeros(7, 2), torch.zeros(7, 2, dtype=torch.bool)
        torch_math.gae(x, x, x, flag, flag, gamma=hyper.gamma, lam=hyper.gae_lambda)
        torch_math.rewards_to_go(x, x, flag, flag, gamma=hyper.gamma)
        torch_math.mean_where(x, flag)
        torch_math.discounted_return(x, flag, x[0], gamma=hyper.gamma)
        moments = torch_math.update_moments(torch_math.no_moments((2,), torch.float32), x)
        torch_math.rescale(torch_math.normalise(x, moments), moments)
