"""Advantages and returns over time-major arrays."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num


def successor_value(
    value: Float[Array, "T E"],
    last_value: Float[Array, "E"],
    final_value: Float[Array, "T E"],
    truncated: Bool[Array, "T E"],
) -> Float[Array, "T E"]:
    """Value of the next observation of each step: of the final observation where the episode was truncated."""
    following = jnp.concatenate([value[1:], last_value[None]])
    return jnp.where(truncated, final_value, following)


def gae(
    reward: Float[Array, "T E"],
    value: Float[Array, "T E"],
    next_value: Float[Array, "T E"],
    terminated: Bool[Array, "T E"],
    done: Bool[Array, "T E"],
    *,
    gamma: Float[Array, ""],
    lam: Float[Array, ""],
) -> Float[Array, "T E"]:
    """Generalised advantage estimation; bootstraps through truncation, never through termination.

    A_t = delta_t + gamma lambda (1 - done_t) A_{t+1}, delta_t = r_t + gamma (1 - terminated_t) V_{t+1} - V_t
    (Schulman et al. 2016, equation 16).
    """
    delta = reward + gamma * jnp.where(terminated, 0, next_value) - value
    decay = jnp.where(done, 0, gamma * lam)
    _, advantage = jax.lax.scan(_accumulate, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=8)
    return advantage


def rewards_to_go(
    reward: Float[Array, "T E"],
    next_value: Float[Array, "T E"],
    terminated: Bool[Array, "T E"],
    done: Bool[Array, "T E"],
    *,
    gamma: Float[Array, ""],
) -> Float[Array, "T E"]:
    """Discounted rewards from each step to the end of its episode; bootstraps where truncated or cut by the rollout.

    R_t = r_t + gamma R_{t+1} within an episode, r_t where it terminates, r_t + gamma V_{t+1} where it is cut.
    """
    ends = jnp.concatenate([done[:-1], jnp.ones_like(done[-1:])])
    bootstrapped = reward + gamma * jnp.where(ends & ~terminated, next_value, 0)
    decay = jnp.where(done, 0, gamma)
    _, result = jax.lax.scan(
        _accumulate, jnp.zeros_like(bootstrapped[0]), (bootstrapped, decay), reverse=True, unroll=8
    )
    return result


def _accumulate(
    advantage: Float[Array, "E"], step: tuple[Float[Array, "E"], Float[Array, "E"]]
) -> tuple[Float[Array, "E"], Float[Array, "E"]]:
    delta, decay = step
    advantage = delta + decay * advantage
    return advantage, advantage


def discounted_return(
    reward: Float[Array, "T E"], done: Bool[Array, "T E"], before: Float[Array, "E"], *, gamma: Float[Array, ""]
) -> Float[Array, "T E"]:
    """Discounted return of each episode up to each step: R_t = r_t + gamma (1 - done_{t-1}) R_{t-1}.

    `before` is R before the first step: zero for new episodes.
    """
    cut = jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]])
    decay = jnp.where(cut, 0, gamma).astype(before.dtype)
    _, result = jax.lax.scan(_accumulate, before, (reward.astype(before.dtype), decay), unroll=8)
    return result


def mean_where(x: Num[Array, "T E"], mask: Bool[Array, "T E"]) -> Float[Array, ""]:
    """Mean of the masked entries; NaN if there are none."""
    return jnp.sum(jnp.where(mask, x, 0)) / jnp.sum(mask)


def nanmean(x: Float[Array, "U"]) -> Float[Array, ""]:
    """Mean of the entries that are not NaN; NaN if there are none."""
    return jnp.nanmean(x)
