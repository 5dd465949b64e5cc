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
    """A uniformly random action with probability `epsilon`, else -1.

    Both from one number u, because each draw is a loop of its own: where u < epsilon, u / epsilon is uniform in [0, 1).
    """
    u = jax.random.uniform(key, shape, epsilon.dtype)
    which = jnp.minimum((u / epsilon * num_actions).astype(jnp.int32), num_actions - 1)
    return jnp.where(u < epsilon, which, -1)


def epsilon_greedy(value: Float[Array, "*B A"], exploration: Int[Array, "*B"]) -> Int[Array, "*B"]:
    """The exploratory action where it is not -1, else the greedy action."""
    return jnp.where(exploration < 0, greedy(value), exploration)
