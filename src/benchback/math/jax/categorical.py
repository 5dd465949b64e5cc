"""The categorical distribution, given logits; same interface as `gaussian.py`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key


def log_prob(logits: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """log softmax(logits)[action].

    A masked sum instead of a gather: the gradient of a gather is a scatter, which XLA runs serially on a CPU.
    """
    chosen = action[..., None] == jnp.arange(logits.shape[-1])
    return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(logits), 0), axis=-1)


def entropy(logits: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    """-sum p log p."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def noise(key: Key[Array, ""], shape: tuple[int, ...], dtype: jnp.dtype) -> Float[Array, "..."]:
    """Standard Gumbel noise."""
    return jax.random.gumbel(key, shape, dtype)


def sample(logits: Float[Array, "*B A"], noise: Float[Array, "*B A"]) -> Int[Array, "*B"]:
    """A sample of softmax(logits), given standard Gumbel noise (the Gumbel-max trick)."""
    return jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)


def greedy(logits: Float[Array, "*B A"]) -> Int[Array, "*B"]:
    """The most probable action."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)
