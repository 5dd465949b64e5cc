"""Running normalisation of observations and rewards; written once for all backends.

The statistics are the agent's, not the environment's: they are in its checkpoints, and an evaluation uses them. A
rollout and the update that follows normalise by the same ones, so that old and new policies see the same observation;
only then they are updated with the rollout. Rollouts keep what the environment gave, and the critic learns in units of
scaled reward. Where a switch is off, its statistics are `()` and nothing is computed.
"""

from typing import Any, NamedTuple

from jaxtyping import Float, Shaped

from benchback.algorithms.onpolicy import Transition
from benchback.math.protocol import Math
from benchback.math.records import Array, DType, Moments


class Normaliser(NamedTuple):
    """Statistics of everything learnt from so far; shared by all environments."""

    obs: Moments | tuple[()]
    """Of each feature of an observation."""
    discounted_return: Moments | tuple[()]
    """Of the discounted return of an episode up to each step."""
    ongoing_return: Float[Array, "E"] | tuple[()]
    """The discounted return so far of each environment's episode; belongs to these episodes only."""


def init_normaliser(
    math: Math, config: Any, observation_shape: tuple[int, ...], dtype: DType
) -> Normaliser | tuple[()]:
    """A normaliser that has seen nothing, and so changes nothing; `()` where none is wanted."""
    if not (config.normalise_obs or config.normalise_reward):
        return ()
    return Normaliser(
        obs=math.no_moments(observation_shape, dtype) if config.normalise_obs else (),
        discounted_return=math.no_moments((), dtype) if config.normalise_reward else (),
        ongoing_return=math.no_moments((config.num_envs,), dtype).mean if config.normalise_reward else (),
    )


def normalise_obs(math: Math, normaliser: Normaliser | tuple[()], obs: Shaped[Array, "*S"]) -> Shaped[Array, "*S"]:
    """Observations as the networks see them: by running mean and std, clipped to +-10."""
    return math.normalise(obs, normaliser.obs) if normaliser and normaliser.obs else obs


def normalise_batch(math: Math, normaliser: Normaliser | tuple[()], batch: Transition) -> Transition:
    """The rollout as it is learnt from: observations normalised, rewards scaled."""
    if normaliser and normaliser.discounted_return:
        batch = batch._replace(reward=math.rescale(batch.reward, normaliser.discounted_return))
    return batch._replace(obs=normalise_obs(math, normaliser, batch.obs))


def update_normaliser(
    math: Math, normaliser: Normaliser | tuple[()], batch: Transition, gamma: Float[Array, ""]
) -> Normaliser | tuple[()]:
    """The normaliser after the rollout, which is given as the environment gave it."""
    if normaliser and normaliser.obs:
        normaliser = normaliser._replace(obs=math.update_moments(normaliser.obs, batch.obs))
    if normaliser and normaliser.discounted_return:
        found = math.discounted_return(batch.reward, batch.done, normaliser.ongoing_return, gamma=gamma)
        normaliser = normaliser._replace(
            discounted_return=math.update_moments(normaliser.discounted_return, found),
            ongoing_return=found[-1] * ~batch.done[-1],
        )
    return normaliser
