"""Running normalisation of observations and rewards; written once for all backends.

The statistics belong to the agent, not to the environment: checkpoints store them and evaluation uses them. A rollout
and the update that follows use the same statistics, so that old and new policy see the same observations; they are
updated with the rollout afterwards. Rollouts store raw observations and rewards, and the critic learns in units of
scaled reward. If an option is off, its statistics are `()` and nothing is computed.
"""

from typing import Any, NamedTuple

from jaxtyping import Float, Shaped

from benchback.algorithms.onpolicy import Transition
from benchback.math.protocol import Math
from benchback.math.records import Array, DType, Moments


class Normaliser(NamedTuple):
    """Running statistics over all training data so far; shared by all environments."""

    obs: Moments | tuple[()]
    """Moments of each observation feature."""
    discounted_return: Moments | tuple[()]
    """Moments of the discounted return of each episode up to each step."""
    ongoing_return: Float[Array, "E"] | tuple[()]
    """Discounted return so far of the current episode of each environment."""


def init_normaliser(
    math: Math, config: Any, observation_shape: tuple[int, ...], dtype: DType
) -> Normaliser | tuple[()]:
    """Initial normaliser (mean 0, variance 1); `()` if both options are off."""
    if not (config.normalise_obs or config.normalise_reward):
        return ()
    return Normaliser(
        obs=math.no_moments(observation_shape, dtype) if config.normalise_obs else (),
        discounted_return=math.no_moments((), dtype) if config.normalise_reward else (),
        ongoing_return=math.no_moments((config.num_envs,), dtype).mean if config.normalise_reward else (),
    )


def normalise_obs(math: Math, normaliser: Normaliser | tuple[()], obs: Shaped[Array, "*S"]) -> Shaped[Array, "*S"]:
    """Observations normalised by running mean and std, clipped to +-10."""
    return math.normalise(obs, normaliser.obs) if normaliser and normaliser.obs else obs


def normalise_batch(math: Math, normaliser: Normaliser | tuple[()], batch: Transition) -> Transition:
    """The rollout with normalised observations and scaled rewards."""
    if normaliser and normaliser.discounted_return:
        batch = batch._replace(reward=math.rescale(batch.reward, normaliser.discounted_return))
    return batch._replace(obs=normalise_obs(math, normaliser, batch.obs))


def update_normaliser(
    math: Math, normaliser: Normaliser | tuple[()], batch: Transition, gamma: Float[Array, ""]
) -> Normaliser | tuple[()]:
    """The normaliser updated with a rollout of raw observations and rewards."""
    if normaliser and normaliser.obs:
        normaliser = normaliser._replace(obs=math.update_moments(normaliser.obs, batch.obs))
    if normaliser and normaliser.discounted_return:
        found = math.discounted_return(batch.reward, batch.done, normaliser.ongoing_return, gamma=gamma)
        normaliser = normaliser._replace(
            discounted_return=math.update_moments(normaliser.discounted_return, found),
            ongoing_return=found[-1] * ~batch.done[-1],
        )
    return normaliser
