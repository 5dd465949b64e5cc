"""The randomness of a rollout or an update, drawn again from an exported random state in the order of the READMEs.

Drawn with the frameworks' own functions rather than with those of `benchback.math`, so that these are checked too;
only the shuffle of the JAX family, a permutation of our own, is called.
"""

from typing import Any

import jax
import numpy as np

from benchback.parity import environment
from benchback.parity.subject import Subject

Source = Any
"""Where a draw comes from: a JAX key of its own, or the torch.Generator that all draws share in turn."""


def sources(subject: Subject, rng: np.ndarray, number: int) -> list[Source]:
    """The sources of the `number` draws of a phase that begins with this exported random state."""
    if subject.spec.family == "jax":
        key = jax.random.wrap_key_data(jax.numpy.asarray(rng))
        return list(jax.random.split(key, number + 1))[1:]
    import torch

    return [torch.Generator().set_state(torch.tensor(rng))] * number


def env_noise(subject: Subject, source: Source, config: Any) -> np.ndarray:
    """Noise of the parity environment in a rollout, `[T, E, *O]`: first observations of new episodes."""
    key = source if subject.spec.family == "jax" else _bridged_key(source)
    return np.asarray(environment.first_obs(key, (config.num_steps, config.num_envs), subject.network))


def _bridged_key(generator: Any) -> jax.Array:
    """The key that a JAX environment gets from torch: two integers."""
    import torch

    high, low = torch.randint(2**31, (2,), generator=generator).tolist()
    return jax.random.fold_in(jax.random.key(high), low)


def gumbel(subject: Subject, source: Source, shape: tuple[int, ...]) -> np.ndarray:
    """Standard Gumbel noise."""
    if subject.spec.family == "jax":
        return np.asarray(jax.random.gumbel(source, shape, subject.dtype), float)
    import torch

    drawn = torch.empty(shape, dtype=getattr(torch, subject.dtype)).exponential_(generator=source)
    return -np.log(drawn.numpy().astype(float))


def normal(subject: Subject, source: Source, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal noise."""
    if subject.spec.family == "jax":
        return np.asarray(jax.random.normal(source, shape, subject.dtype), float)
    import torch

    return torch.randn(shape, dtype=getattr(torch, subject.dtype), generator=source).numpy().astype(float)


def uniform(subject: Subject, source: Source, shape: tuple[int, ...]) -> np.ndarray:
    """Noise uniform between 0 and 1."""
    if subject.spec.family == "jax":
        return np.asarray(jax.random.uniform(source, shape, subject.dtype), float)
    import torch

    return torch.rand(shape, dtype=getattr(torch, subject.dtype), generator=source).numpy().astype(float)


def integers(subject: Subject, source: Source, shape: tuple[int, ...], limit: int) -> np.ndarray:
    """Uniform integers 0 .. limit-1: in JAX 32 random bits times the limit, over 2^32."""
    if subject.spec.family == "jax":
        bits = np.asarray(jax.random.bits(source, shape, np.uint32), np.uint64)
        return (bits * np.uint64(limit) >> np.uint64(32)).astype(int)
    import torch

    return torch.randint(limit, shape, generator=source).numpy()


def exploration(
    subject: Subject, source: Source, shape: tuple[int, ...], epsilon: float, num_actions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that are below epsilon where an action is explored, and the action that is then taken.

    In JAX the action is that of the same number over epsilon; torch draws it apart.
    """
    number = uniform(subject, source, shape)
    if subject.spec.family == "torch":
        return number, integers(subject, source, shape, num_actions)
    return number, np.floor(np.minimum(number / epsilon, 1) * num_actions).astype(int)


def halves(subject: Subject, source: Source) -> tuple[Source, Source]:
    """The sources of two draws that share one: the key split in two, or the generator twice."""
    if subject.spec.family == "jax":
        first, second = jax.random.split(source)
        return first, second
    return source, source


def minibatch_rows(subject: Subject, source: Source, config: Any, batch_size: int | None = None) -> np.ndarray:
    """The rows of each gradient step of an update, `[U, B]`: every epoch in an order of its own.

    `batch_size` is their number, by default that of all steps.
    """
    count: int = batch_size or config.batch_size
    if subject.spec.family == "jax":
        from benchback.math.jax.shuffles import minibatch_indices

        sizes = {name: getattr(config, name) for name in ("num_epochs", "num_minibatches")}
        return np.asarray(minibatch_indices(source, batch_size=count, **sizes))
    import torch

    epochs = [torch.randperm(count, generator=source).numpy() for _ in range(config.num_epochs)]
    return np.concatenate(epochs).reshape(config.num_epochs * config.num_minibatches, -1)
