"""Known mistakes, made on purpose: each must be caught, and the check that catches it must pass without it.

One backend of each family: what is mutated is shared by the family, or differs from backend to backend only
in its spelling.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import jax
import numpy as np
import pytest
import torch

from benchback.algorithms.ppo.config import Config
from benchback.parity import Row, measure
from benchback.parity.ppo import cases, levels
from benchback.parity.subject import Subject, computing
from benchback.parity.tolerance import TOLERANCE
from benchback.registry import ALGORITHMS

FAMILIES = {"purejax": "jax", "pytorch": "torch"}
Wrong = Callable[[Any], Any]
"""The right function -> one with a mistake."""


def caught(backend: str, level: str, dtype: str = "float32") -> list[Row]:
    """What is off in the cases of one configuration, on which the programs that are timed are proven too."""
    return [row for row in measure("ppo", [backend], [dtype], [level], thorough=False) if not row.ok]


@cache
def caught_without_mistake(backend: str, level: str, dtype: str = "float32") -> list[Row]:
    return caught(backend, level, dtype)


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Wrong], None]:
    """Replace the function `name` of a module, or of a class in it, by a wrong one."""

    def replace(module: str, name: str, wrong: Wrong) -> None:
        owner, _, name = name.rpartition(".")
        target = getattr(import_module(module), owner) if owner else import_module(module)
        monkeypatch.setattr(target, name, staticmethod(wrong(getattr(target, name))))

    return replace


# Mistakes that can be spelled alike in both families, since the maths are twins.


def sample_deviation(right: Any) -> Any:
    """ddof=1 in place of 0."""
    return lambda x: right(x) * ((len(x) - 1) / len(x)) ** 0.5


def better_error(right: Any) -> Any:
    """The smaller of the two value errors in place of the larger."""

    def wrong(value: Any, old_value: Any, target: Any, clip: Any) -> Any:
        clipped = old_value + (value - old_value).clip(-clip, clip)
        both = 0.5 * ((value - target) ** 2 + (clipped - target) ** 2).mean()
        return both - right(value, old_value, target, clip)

    return wrong


def clip_around_target(right: Any) -> Any:
    """Values clipped to the neighbourhood of the target in place of the old value."""
    return lambda value, old_value, target, clip: right(value, target, target, clip)


def no_bootstrap(right: Any) -> Any:
    """A time limit taken for the end of all reward."""
    return lambda value, last_value, final_value, cut: right(value, last_value, 0 * final_value, cut)


def bootstrap_from_next_episode(right: Any) -> Any:
    """The first value of the next episode in place of the final one of this."""
    return lambda value, last_value, final_value, cut: right(value, last_value, final_value, cut & False)


def swapped_gamma_and_lambda(right: Any) -> Any:
    """Two floats in each other's place."""
    return lambda *arrays, gamma, lam: right(*arrays, gamma=lam, lam=gamma)


def done_one_step_late(right: Any) -> Any:
    """`done` of the step before, as where it is stored with the next observation."""

    def wrong(reward: Any, value: Any, next_value: Any, terminated: Any, done: Any, **floats: Any) -> Any:
        before = np.roll(np.arange(len(done)), 1)
        return right(reward, value, next_value, terminated[before], done[before], **floats)

    return wrong


def through_termination(right: Any) -> Any:
    """Bootstrapping from what follows the end of an episode."""

    def wrong(reward: Any, value: Any, next_value: Any, terminated: Any, done: Any, **floats: Any) -> Any:
        return right(reward, value, next_value, terminated & False, done, **floats)

    return wrong


def per_gradient_step(right: Any) -> Any:
    """The learning rate annealed with every gradient step in place of every iteration."""

    def wrong(initial: Any, count: Any, *, steps_per_iteration: int, num_iterations: int) -> Any:
        return right(initial, count, steps_per_iteration=1, num_iterations=steps_per_iteration * num_iterations)

    return wrong


SHARED = {
    "sample_deviation": ("L1", "", "standardise", sample_deviation),
    "better_error": ("L1", "", "clipped_value_loss", better_error),
    "clip_around_target": ("L1", "", "clipped_value_loss", clip_around_target),
    "per_gradient_step": ("L1", ".optimisers", "linear_anneal", per_gradient_step),
    "no_bootstrap": ("L3", "", "successor_value", no_bootstrap),
    "bootstrap_from_next_episode": ("L3", "", "successor_value", bootstrap_from_next_episode),
    "swapped_gamma_and_lambda": ("L3", "", "gae", swapped_gamma_and_lambda),
    "done_one_step_late": ("L3", "", "gae", done_one_step_late),
    "through_termination": ("L3", "", "gae", through_termination),
}


@pytest.mark.parametrize("backend", FAMILIES)
@pytest.mark.parametrize("mistake", SHARED)
def test_mistake_in_the_maths_is_caught(mistake: str, backend: str, mutate: Callable[..., None]) -> None:
    level, module, name, wrong = SHARED[mistake]
    assert caught_without_mistake(backend, level) == []
    mutate(f"benchback.math.{FAMILIES[backend]}{module}", name, wrong)
    assert "weight" in {row.quantity.removesuffix("/box") for row in caught(backend, level)}


# Mistakes in the other surrogates.


def drift_with(mistake: str) -> Wrong:
    """DPO's surrogate as both families spell it, with one mistake; with none it passes."""

    def wrong(log_ratio: Any, advantage: Any, alpha: Any, beta: Any) -> Any:
        xp: Any = torch if isinstance(log_ratio, torch.Tensor) else jax.numpy
        positive = advantage < 0 if mistake == "other branch" else advantage >= 0
        alpha, beta = (beta, alpha) if mistake == "swapped scales" else (alpha, beta)
        change = xp.expm1(log_ratio)
        u = xp.where(positive, change, change if mistake == "ratio for its logarithm" else log_ratio) * advantage
        scale = xp.where(positive, alpha, beta)
        drift = (u - scale * xp.tanh(u / scale)) * (1 if mistake == "no relu" else u > 0)
        return -((1 + change) * advantage - drift).mean()

    return lambda right: wrong


def learned_with(mistake: str) -> Wrong:
    """The learned surrogate, with one mistake; with none it passes."""

    def wrong(log_ratio: Any, advantage: Any, weights: Any) -> Any:
        xp: Any = torch if isinstance(log_ratio, torch.Tensor) else jax.numpy
        change = xp.expm1(log_ratio)
        plain = xp.stack([change, change**2, log_ratio, log_ratio**2], -1)
        factor = advantage**2 if mistake == "square of the advantage" else advantage
        features = xp.concatenate([plain, plain * factor[:, None]], -1)
        table = weights.reshape(-1, 9).T if mistake == "unit by unit" else weights.reshape(9, -1)
        hidden = features @ table[:8]
        total = (hidden * (hidden > 0)) @ table[8] - (0 if mistake == "no margin" else 1e-6)
        drift = total if mistake == "no relu" else total * (total > 0)
        return -((1 + change) * advantage - drift).mean()

    return lambda right: wrong


IN_SURROGATES = [
    *((cases.DRIFT, drift_with, x) for x in ("other branch", "swapped scales", "ratio for its logarithm", "no relu")),
    *((cases.LEARNED, learned_with, x) for x in ("square of the advantage", "unit by unit", "no margin", "no relu")),
]


def off_with_surrogate(backend: str, config: Config) -> set[str]:
    """What is off in gradient steps with this surrogate."""
    with computing("float32", optimised=False):
        found = list(levels.surrogate_steps(Subject("ppo", backend, "float32", {}), config))
    allowed = TOLERANCE["float32"]["L1"]
    return {quantity for quantity, off in found if not off <= allowed[quantity.split("/")[0]]}


@pytest.mark.parametrize("backend", FAMILIES)
@pytest.mark.parametrize(("config", "wrong"), [(cases.DRIFT, drift_with), (cases.LEARNED, learned_with)])
def test_surrogates_are_right_without_a_mistake(config: Config, wrong: Any, backend: str, mutate: Any) -> None:
    assert off_with_surrogate(backend, config) == set()
    mutate(f"benchback.math.{FAMILIES[backend]}", f"{config.surrogate}_surrogate", wrong(""))
    assert off_with_surrogate(backend, config) == set()


@pytest.mark.parametrize("backend", FAMILIES)
@pytest.mark.parametrize(("config", "wrong", "mistake"), IN_SURROGATES)
def test_mistake_in_a_surrogate_is_caught(config: Config, wrong: Any, mistake: str, backend: str, mutate: Any) -> None:
    mutate(f"benchback.math.{FAMILIES[backend]}", f"{config.surrogate}_surrogate", wrong(mistake))
    assert f"gradient/{config.surrogate}" in off_with_surrogate(backend, config)


# Which rows a gradient step takes.


def rows_of_first_epoch(right: Any) -> Any:
    """The first epoch's rows drawn for every epoch."""

    def wrong(random: Any, *, num_epochs: int, num_minibatches: int, **sizes: int) -> Any:
        rows = right(random, num_epochs=num_epochs, num_minibatches=num_minibatches, **sizes)
        return rows[np.arange(len(rows)) % num_minibatches]

    return wrong


def rows_of_first_step(right: Any) -> Any:
    """The rows of the first gradient step taken in every step, whatever was drawn."""
    taken: list[Any] = []

    def wrong(data: Any, index: Any) -> Any:
        taken.append(index)
        return right(data, taken[0])

    return wrong


@pytest.mark.parametrize("backend", FAMILIES)
def test_rows_of_the_first_epoch_in_every_epoch_are_caught(backend: str, mutate: Callable[..., None]) -> None:
    assert caught_without_mistake(backend, "L3") == []
    mutate(f"benchback.math.{FAMILIES[backend]}", "minibatch_indices", rows_of_first_epoch)
    assert {"weight", "weight/iteration"} <= {row.quantity for row in caught(backend, "L3")}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_torch_learns_what_jax_learns_from_the_same_noise_and_rows(algorithm: str) -> None:
    found = beside(algorithm)
    assert {quantity.split("/")[0] for quantity in found} >= {"action", "metric", "episode", "weight", "mean", "count"}
    assert [quantity for quantity, ok in found.items() if not ok] == []


def beside(algorithm: str) -> dict[str, bool]:
    """Which quantities of torch's iterations agree with JAX's."""
    subject = Subject(algorithm, "pytorch", "float32", {})
    with computing("float32", optimised=False):
        found = dict(import_module(f"benchback.parity.{algorithm}.levels").beside(subject))
    allowed = TOLERANCE["float32"]["L3"]
    return {quantity: off <= allowed[quantity.split("/")[0]] for quantity, off in found.items()}


def test_other_rows_than_those_of_jax_are_caught(mutate: Callable[..., None]) -> None:
    mutate("benchback.math.torch", "take", rows_of_first_step)
    assert not beside("ppo")["weight/jax"]


# Mistakes that every family spells in its own way.


def each_entry(right: Any) -> Any:
    """Entries of the gradient clipped one by one in place of the norm of all."""

    def wrong(gradient: Any, limit: Any) -> Any:
        return gradient.clamp(-limit, limit), right(gradient, limit)[1]

    return wrong


def each_entry_of_a_tree(right: Any) -> Any:
    """The same in the JAX family, whose gradients are trees."""
    return lambda gradient, limit: jax.tree.map(lambda g: g.clip(-limit, limit), gradient)


@pytest.mark.parametrize("backend", FAMILIES)
def test_clipping_entry_by_entry_is_caught(backend: str, mutate: Callable[..., None]) -> None:
    assert caught_without_mistake(backend, "L1") == []
    if backend == "pytorch":
        mutate("benchback.math.torch.optimisers", "clip_by_global_norm", each_entry)
    else:
        mutate("benchback.math.jax.optimisers", "clip_by_global_norm", each_entry_of_a_tree)
    assert {"gradient", "weight"} <= {row.quantity.removesuffix("/box") for row in caught(backend, "L1")}


def norm_plus_a_little(right: Any) -> Any:
    """torch.nn.utils.clip_grad_norm_, which divides by norm + 1e-6."""

    def wrong(gradient: Any, limit: Any) -> Any:
        norm = right(gradient, limit)[1]
        return gradient * (limit / (norm + 1e-6)).clamp(max=1), norm

    return wrong


def test_float64_shows_what_float32_cannot(mutate: Callable[..., None]) -> None:
    assert caught_without_mistake("pytorch", "L1", "float64") == []
    mutate("benchback.math.torch.optimisers", "clip_by_global_norm", norm_plus_a_little)
    assert caught("pytorch", "L1") == []
    assert "gradient" in {row.quantity.removesuffix("/box") for row in caught("pytorch", "L1", "float64")}


@pytest.mark.parametrize("backend", FAMILIES)
def test_another_epsilon_in_adam_is_caught(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught_without_mistake(backend, "L1") == []
    hyper = vars(Config)["hyper"].fget
    monkeypatch.setattr(Config, "hyper", property(lambda config: hyper(config)._replace(adam_epsilon=1e-8)))
    assert {row.quantity.removesuffix("/box") for row in caught(backend, "L1")} == {"weight"}


def unscaled_head(right: Any) -> Any:
    """The last layer of each tower scaled as all others."""

    def wrong(*arguments: Any) -> Any:
        return right(*(2**0.5 if isinstance(x, float) else x for x in arguments))

    return wrong


@pytest.mark.parametrize(("backend", "builder"), [("purejax", "init_mlp"), ("pytorch", "ActorCritic.tower")])
def test_unscaled_last_layer_is_caught(backend: str, builder: str, mutate: Callable[..., None]) -> None:
    assert caught_without_mistake(backend, "L0") == []
    mutate(f"benchback.backends.{backend}", builder, unscaled_head)
    assert {row.quantity.removesuffix("/box") for row in caught(backend, "L0")} == {"initial_kernel"}


def biased_layers(right: Any) -> Any:
    """Layers as many frameworks start them by default, with biases that are not zero."""

    def wrong(*arguments: Any) -> Any:
        return [layer | {"bias": layer["bias"] + 0.1} for layer in right(*arguments)]

    return wrong


def biased_module(right: Any) -> Any:
    """The same, as a module of PyTorch."""

    def wrong(*arguments: Any) -> Any:
        module = right(*arguments)
        for name, parameter in module.named_parameters():
            parameter.data += 0.1 * name.endswith("bias")
        return module

    return wrong


@pytest.mark.parametrize(
    ("backend", "builder", "wrong"),
    [("purejax", "init_mlp", biased_layers), ("pytorch", "ActorCritic.tower", biased_module)],
)
def test_biases_that_do_not_start_at_zero_are_caught(
    backend: str, builder: str, wrong: Wrong, mutate: Callable[..., None]
) -> None:
    assert caught_without_mistake(backend, "L0") == []
    mutate(f"benchback.backends.{backend}", builder, wrong)
    assert {row.quantity.removesuffix("/box") for row in caught(backend, "L0")} == {"initial_bias"}
