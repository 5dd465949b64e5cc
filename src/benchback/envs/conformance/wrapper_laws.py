"""The laws of the wrappers in an environment's id."""

from typing import Any

import numpy as np

from benchback.envs import wrappers
from benchback.envs.conformance.laws import Broken, DoesNotApply, outcomes
from benchback.envs.conformance.playing import MOST_STEPS, SHORT, Examination, at_random
from benchback.envs.interface import Step


def check_frame_stack(examined: Examination) -> str:
    """Frames move up by one at every step, and an episode begins with copies of its first."""
    count = _value(examined, "frame_stack")
    history = examined.episodes
    step, done = history.step, history.done

    def frames(obs: np.ndarray) -> np.ndarray:
        return np.moveaxis(obs.reshape(*obs.shape[:-1], count, -1), -2, 0)

    before = np.concatenate([history.first_obs[None], step.obs[:-1]])
    if not np.array_equal(frames(step.final_obs)[:-1], frames(before)[1:], equal_nan=step.obs.dtype.kind == "f"):
        raise Broken("the frames of a final observation are not those before it and a new one")
    if not all(np.array_equal(frame, frames(history.begun)[-1]) for frame in frames(history.begun)):
        raise Broken("an episode begins with frames of the one before it")
    return f"{count} frames, {int(done.sum())} ended episodes"


def check_observe(examined: Examination) -> str:
    """Observations are the chosen entries of those without the wrapper, and nothing else changes."""
    entries = _value(examined, "observe")
    mine, whole = examined.short.step, examined.without("observe").replayed(examined.short).step
    # Frames of a stack come after the entries.
    whole = whole._replace(obs=whole.obs[:, :, entries], final_obs=whole.final_obs[:, :, entries])
    same = {name: np.array_equal(a, b) for name, a, b in zip(Step._fields, mine, whole, strict=True)}
    if not (same["obs"] and same["final_obs"]):
        raise Broken(f"observations are not the entries {entries} of those without the wrapper")
    if not all(same.values()):
        raise Broken("rewards or ends of episodes are not those without the wrapper")
    return f"entries {', '.join(map(str, entries))}"


def check_clip_reward(examined: Examination) -> str:
    """Rewards are clipped, returns are not."""
    bound = _value(examined, "clip_reward")
    mine, raw = examined.episodes, examined.without("clip_reward").replayed(examined.episodes)
    if not np.allclose(mine.step.reward, np.clip(raw.step.reward, -bound, bound)):
        raise Broken(f"rewards are not those without the wrapper, clipped to {bound:g}")
    if not np.array_equal(mine.step.episode_return, raw.step.episode_return):
        raise Broken("returns are not those without the wrapper")
    clipped = int((np.abs(raw.step.reward) > bound).sum())
    return f"{clipped} of {raw.step.reward.size} rewards were larger than {bound:g}"


def check_sticky_actions(examined: Examination) -> str:
    """Repeated actions stay what they are, and changing ones are sometimes not taken."""
    _value(examined, "sticky_actions")
    plain, action = examined.without("sticky_actions"), examined.short.action
    same = np.broadcast_to(action[:1], action.shape).copy()
    both = (one.replayed(examined.short, same).step.final_obs for one in (examined, plain))
    if not np.array_equal(*both):
        raise Broken("the same action in every step gives other observations than without the wrapper")
    if all(np.array_equal(a, b) for a, b in outcomes(examined.short, plain.replayed(examined.short))):
        raise DoesNotApply(f"in {SHORT} steps no action was repeated, or none has an effect")
    return "with one action nothing changes, with several something does"


def check_time_limit(examined: Examination) -> str:
    """No episode is longer than the limit, and one that reaches it is truncated."""
    limit = _value(examined, "time_limit")
    history = examined.play(min(2 * limit, MOST_STEPS) + 3, at_random(examined.env, 5))
    step, lengths = history.step, history.step.episode_length
    if (lengths > limit).any():
        raise Broken(f"an episode went on to {lengths.max()} steps")
    reached = lengths == limit
    if not reached.any():
        raise DoesNotApply(f"no episode lasted {limit} steps")
    if not step.truncated[reached].all():
        raise Broken(f"an episode of {limit} steps was not truncated")
    return f"{int(reached.sum())} episodes truncated at {limit}"


def _value(examined: Examination, name: str) -> Any:
    found = wrappers.value(examined.wrappers, name)
    if found is None:
        raise DoesNotApply("not in this id")
    return found
