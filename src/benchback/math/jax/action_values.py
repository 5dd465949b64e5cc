"""Q-values of discrete actions: indexing and epsilon-greedy action selection."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from benchback.math.jax.categorical import greedy


def q_of_action(value: Float[Array, "*B A"], action: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """value[action].

    A masked sum instead of a gather: the gradient of a gather is a scatter, which XLA runs serially on a CPU.
    """
    return jnp.sum(jnp.where(action[..., None] == jnp.arange(value.shape[-1]), value, 0), axis=-1)


def epsilon_noise(
    key: Key[Array, ""], epsilon: Float[Array, ""], shape: tuple[int, ...], num_actions: int
) -> Int[Array, "..."]:
    """A uniformly random action with probability `epsilon`, else -1."""
    whether_key, which_key = jax.random.split(key)
    explores = jax.random.uniform(whether_key, shape, epsilon.dtype) < epsilon
    return jnp.where(explores, jax.random.randint(which_key, shape, 0, num_actions, jnp.int32), -1)


def epsilon_greedy(value: Float[Array, "*B A"], exploration: Int[Array, "*B"]) -> Int[Array, "*B"]:
    """The exploratory action where it is not -1, else the greedy action."""
    return jnp.where(exploration < 0, greedy(value), exploration)
