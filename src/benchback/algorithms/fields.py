"""Shared by the Configs of all algorithms: model sizes and validation of fields."""

from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from typing import Any, NamedTuple

import numpy as np

from benchback.errors import InputError
from benchback.plugins.towers import TOWERS


class Rows(NamedTuple):
    """Rows that go through a network in an iteration."""

    forward: int
    """Without a gradient: to act, and for targets."""
    gradient: int
    """In gradient steps of its weights."""
    input_gradient: int = 0
    """In gradient steps of another network whose output is its input."""
    final: int = 0
    """Final observations of episodes, whose values matter only if an episode was truncated."""
    follows: bool = False
    """Whether its input is another network's output, so that gradient steps need the gradient of its input."""


def hyper_value(value: Any) -> Any:
    """A field as a hyper-parameter: a vector, which a Config has as a tuple, as an array; () where there is none."""
    return np.array(value) if isinstance(value, tuple) and value else value


MOST_LAYERS, WIDEST = 64, 65536
MODEL_SIZES = {"small": (64, 64), "medium": (256,) * 3, "large": (1024,) * 6}


def hidden_layers(config: Any, sizes: Mapping[str, tuple[int, ...]] = MODEL_SIZES) -> tuple[int, ...]:
    """Widths of the hidden layers: as given, or those of a convolutional network's tower, or of the model."""
    tower = TOWERS.get(config.network)
    return config.hidden_sizes or (tower.dense if tower else sizes[config.model])


MOST = 2**31 - 1
"""Largest count: programs index with 32 bits."""
SMALLEST, LARGEST = 1.2e-38, 3.4e38
"""Ends of the positive numbers that float32 holds; below, processors take them for 0."""
MOST_LOG_STD = 20.0
"""Log standard deviations beyond this overflow when actions are drawn, or leave no noise at all."""


def check_counts(config: Any, names: Iterable[str], least: int = 1) -> None:
    """Raise an InputError unless each of the named fields is at least `least`, and small enough to index."""
    for name in names:
        value = getattr(config, name)
        if value < least:
            raise InputError(f"{name}={value} must be at least {least}")
        if value > MOST:
            raise InputError(f"{name}={_short(value)} is too large; choose at most {MOST:,}")


def check_batch(config: Any) -> None:
    """Raise an InputError if the steps of a rollout are too many to index."""
    if config.num_envs * config.num_steps > MOST:
        raise InputError(
            f"num_envs={config.num_envs} x num_steps={config.num_steps} are too many steps; choose at most {MOST:,}"
        )


def check_finite(config: Any) -> None:
    """Raise an InputError unless every float field is a number that float32 holds."""
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float) and not abs(value) <= LARGEST:
            raise InputError(f"{field.name}={value} must be a finite number{_example(field)}")


def check_positive(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is greater than 0, in float32 too."""
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            raise InputError(f"{name}={value} must be greater than 0{_default(config, name)}")
        if value < SMALLEST:
            raise InputError(f"{name}={value} is 0 in float32; choose at least {SMALLEST}")


def check_not_negative(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is at least 0."""
    for name in names:
        if not getattr(config, name) >= 0:
            raise InputError(f"{name}={getattr(config, name)} must not be negative{_default(config, name)}")


def check_shares(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is in [0, 1]."""
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise InputError(f"{name}={getattr(config, name)} must lie between 0 and 1{_default(config, name)}")


def check_decays(config: Any, names: Iterable[str]) -> None:
    """Raise an InputError unless each of the named fields is in [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{name}={getattr(config, name)} must lie in [0, 1){_default(config, name)}")


def check_log_std(config: Any) -> None:
    """Raise an InputError unless the initial standard deviation of actions is a sensible number."""
    if not abs(config.initial_log_std) <= MOST_LOG_STD:
        raise InputError(
            f"initial_log_std={config.initial_log_std} is a logarithm; choose one between -{MOST_LOG_STD:g} and "
            f"{MOST_LOG_STD:g}{_default(config, 'initial_log_std')}"
        )


def check_hidden_sizes(config: Any) -> None:
    """Raise an InputError unless all given hidden layers have a positive width."""
    sizes = config.hidden_sizes
    if any(size < 1 for size in sizes):
        raise InputError(f"hidden_sizes={sizes} must be positive, e.g. 64 64")
    if len(sizes) > MOST_LAYERS or any(size > WIDEST for size in sizes):
        raise InputError(
            f"hidden_sizes={_short(sizes)}: at most {MOST_LAYERS} layers of at most {WIDEST} units, e.g. 64 64"
        )


def check_model(config: Any) -> None:
    """Raise an InputError if a convolutional network, which has dense layers of its own, is given a model size."""
    usual = next(field.default for field in fields(config) if field.name == "model")
    if config.network in TOWERS and config.model != usual:
        raise InputError(
            f"model={config.model} is a size of --network mlp; give {config.network} its dense layers, "
            f"e.g. --hidden-sizes {TOWERS[config.network].dense[0]}"
        )


def _example(field: Field) -> str:
    return f", e.g. {field.default}" if isinstance(field.default, int | float) else ""


def _default(config: Any, name: str) -> str:
    return next((_example(field) for field in fields(config) if field.name == name), "")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
