"""What an agent remembers of observations and rewards to bring them to a common scale; once for all backends.

The statistics are the agent's, not the environment's: they are in its checkpoints, and whoever plays it has them.
A rollout and the update that follows look through the same ones, so that old and new policies see the same
observation; only then the rollout is absorbed. Rollouts keep what the environment gave, and the critic learns in
units of scaled reward. Where a switch is off, its statistics are `()` and nothing is computed.
"""

from types import ModuleType
from typing import Any, NamedTuple


class Normaliser(NamedTuple):
    """Statistics of everything learnt from so far; shared by all environments."""

    obs: Any
    """Moments of each feature of an observation."""
    discounted_return: Any
    """Moments of the discounted return of an episode up to each step."""
    ongoing_return: Any
    """The discounted return so far of each environment's episode, `[E]`; belongs to these episodes only."""


def fresh_normaliser(math: ModuleType, config: Any, observation_size: int, dtype: Any) -> Normaliser | tuple[()]:
    """The normaliser that has seen nothing, and so changes nothing; `()` where none is wanted."""
    if not (config.normalise_obs or config.normalise_reward):
        return ()
    return Normaliser(
        obs=math.no_moments((observation_size,), dtype) if config.normalise_obs else (),
        discounted_return=math.no_moments((), dtype) if config.normalise_reward else (),
        ongoing_return=math.no_moments((config.num_envs,), dtype).mean if config.normalise_reward else (),
    )


def visible(math: ModuleType, normaliser: Normaliser | tuple[()], obs: Any) -> Any:
    """The observation as the networks see it."""
    return math.normalise(obs, normaliser.obs) if normaliser and normaliser.obs else obs


def visible_batch(math: ModuleType, normaliser: Normaliser | tuple[()], batch: Any) -> Any:
    """The rollout as it is learnt from: observations as the networks saw them, rewards to scale."""
    if normaliser and normaliser.discounted_return:
        batch = batch._replace(reward=math.rescale(batch.reward, normaliser.discounted_return))
    return batch._replace(obs=visible(math, normaliser, batch.obs))


def absorbed(math: ModuleType, normaliser: Any, batch: Any, gamma: Any) -> Any:
    """The normaliser after it has seen the rollout, too, as the environment gave it."""
    if normaliser and normaliser.obs:
        normaliser = normaliser._replace(obs=math.absorb(normaliser.obs, batch.obs))
    if normaliser and normaliser.discounted_return:
        done = batch.terminated | batch.truncated
        found = math.discounted_return(batch.reward, done, normaliser.ongoing_return, gamma=gamma)
        normaliser = normaliser._replace(
            discounted_return=math.absorb(normaliser.discounted_return, found),
            ongoing_return=found[-1] * ~done[-1],
        )
    return normaliser
