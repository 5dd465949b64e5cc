"""The laws: each function plays what it needs, returns the evidence, and raises Broken or DoesNotApply."""

from collections.abc import Sequence

import numpy as np

from benchback import envs
from benchback.envs import wrappers
from benchback.envs.conformance.playing import SHORT, Examination, History, at_random, native
from benchback.envs.interface import Box, Discrete, Step

OTHER_SEEDS = (7, 8, 9)
FEW = 4
"""Ended episodes, half of all at least, from which on a longest length in common is taken for a time limit."""
TYPES = {"f": "real numbers", "b": "booleans", "i": "integers"}
"""Kinds of NumPy's types."""


class Broken(Exception):
    """A law is broken; the message says by what."""


class DoesNotApply(Exception):
    """A law says nothing about this environment, or what was played cannot show it; the message says why."""


def check_steps(examined: Examination) -> str:
    """It can be made, reset and stepped, and compiled."""
    history = examined.short
    return f"{len(history.action)} steps of {examined.subject.num_envs} environments"


def check_state(examined: Examination) -> str:
    """The state keeps its structure, shapes and types from step to step, as a compiled loop needs it."""
    env = examined.env
    if env.framework != "jax":
        raise DoesNotApply("a loop in torch takes any state")
    import jax

    action, noise = native(env, examined.short.action[0]), env.draw(env.random(1), 1)[0]
    before = jax.eval_shape(env.reset, env.random(0))
    after, _ = jax.eval_shape(env.step, before, action, noise)
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise Broken("after a step the state has other parts than after a reset")
    for (path, a), (_, b) in zip(*map(jax.tree_util.tree_leaves_with_path, (before, after)), strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise Broken(f"{name} is {a.shape} of {a.dtype} after a reset and {b.shape} of {b.dtype} after a step")
    return f"{len(jax.tree.leaves(before))} arrays"


def check_shapes(examined: Examination) -> str:
    """Observations have the shape that is promised and one type; the other fields are one number per environment."""
    env, (first_obs, _, step, _), num_envs = examined.env, examined.short, examined.subject.num_envs
    shape, dtype = examined.subject.layout or (env.observation_shape, str(first_obs.dtype))
    if env.observation_shape != shape or (env.id, env.num_envs) != (examined.subject.id, num_envs):
        raise Broken(f"the environment promises {env.id} x {env.num_envs}, observations of {env.observation_shape}")
    for name, array in (("first obs", first_obs[None]), ("obs", step.obs), ("final_obs", step.final_obs)):
        if array.shape[1:] != (num_envs, *shape) or str(array.dtype) != dtype:
            raise Broken(f"{name} is {array.shape[2:]} of {array.dtype}, and {shape} of {dtype} is promised")
    kinds = {"reward": "f", "terminated": "b", "truncated": "b", "episode_return": "f", "episode_length": "i"}
    for name, kind in kinds.items():
        array = getattr(step, name)
        if array.shape != (SHORT, num_envs):
            raise Broken(f"{name} has the shape {array.shape[1:]}, and ({num_envs},) is one number per environment")
        if array.dtype.kind != kind:
            raise Broken(f"{name} is of type {array.dtype}; {TYPES[kind]} are expected")
    return f"observations {shape} of {dtype}, {env.actions.kind} actions of size {env.actions.size}"


def check_finite(examined: Examination) -> str:
    """Observations and rewards are finite numbers."""
    for history in (examined.short, examined.episodes):
        for name in ("obs", "final_obs", "reward"):
            wrong = ~np.isfinite(getattr(history.step, name).astype(np.float64))
            if wrong.any():
                raise Broken(
                    f"{name} has {int(wrong.sum())} values that are NaN or infinite, first in step {first(wrong)}"
                )
        if not np.isfinite(history.first_obs.astype(np.float64)).all():
            raise Broken("the first observation has values that are NaN or infinite")
    return "all of them"


def first(mask: np.ndarray) -> int:
    """The first step, counted from 1, in which the mask holds anywhere."""
    return 1 + int(np.flatnonzero(mask.reshape(len(mask), -1).any(axis=1))[0])


def check_seeds(examined: Examination) -> str:
    """Equal seeds give equal episodes, other seeds other ones."""
    mine = examined.short
    again = examined.play(SHORT, at_random(examined.env, 0))
    if not np.array_equal(mine.first_obs, again.first_obs):
        raise Broken("the same seed began differently the second time: resets draw from something that is not seeded")
    for name, a, b in zip(Step._fields, mine.step, again.step, strict=True):
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            raise Broken(f"the same seed and actions gave another {name} in step {first(a != b)}")
    if examined.subject.starts in ("random", "distinct"):
        reset, env = examined.functions[0], examined.env
        others = [np.asarray(reset(env.random(seed)).obs) for seed in OTHER_SEEDS]
        if all(np.array_equal(mine.first_obs, other) for other in others):
            raise Broken(f"seeds 0, {', '.join(map(str, OTHER_SEEDS))} begin alike; if all episodes do, --starts 1")
    return f"{SHORT} steps played twice"


def check_starts(examined: Examination) -> str:
    """Every episode begins with a reset of its own."""
    starts, begun = examined.subject.starts, examined.episodes.begun
    if len(begun) == examined.subject.num_envs:
        raise DoesNotApply(f"no episode ended in {len(examined.episodes.action)} steps")
    different = len(np.unique(begun, axis=0))
    if starts == "distinct" and different < len(begun):
        raise Broken(f"{len(begun)} episodes had {different} different beginnings, and no two should be alike")
    if isinstance(starts, int) and not (min(starts, 2) <= different <= starts):
        raise Broken(f"{len(begun)} episodes had {different} different beginnings, and there should be {starts}")
    if starts == "random" and different == 1:
        raise Broken(f"all {len(begun)} episodes begin alike: resets are not random; if that is meant, --starts 1")
    return f"{different} different beginnings of {len(begun)} episodes"


def check_truncation(examined: Examination) -> str:
    """A time limit truncates, and does not terminate."""
    subject, history = examined.subject, examined.episodes
    lengths, step, done = history.step.episode_length, history.step, history.done
    if subject.lasting and subject.limit:
        ends = [np.flatnonzero(step.truncated[:, e]).tolist() for e in range(subject.num_envs)]
        if step.terminated.any() or any(found != [subject.limit - 1] for found in ends):
            raise Broken(f"episodes that last were truncated in steps {ends}, counted from 0, not at {subject.limit}")
        return f"truncated at {subject.limit} and not before"
    if subject.limit == 0:
        if step.truncated.any():
            raise Broken(f"an episode was truncated in step {first(step.truncated)}, and there is no limit")
        return "no episode was truncated"
    if subject.limit is not None:
        return _check_limit(history, subject.limit)
    if not done.any():
        raise DoesNotApply(f"no episode ended in {len(history.action)} steps; give the time limit, --limit N")
    ended, longest = int(done.sum()), int(lengths[done].max())
    together = int((lengths[done] == longest).sum())
    if not step.truncated.any() and longest > 1 and together >= max(FEW, ended / 2):
        raise Broken(
            f"{together} of {ended} episodes terminated after exactly {longest} steps and none later, whatever was "
            "done: a time limit must truncate; if they end there by themselves, --limit 0"
        )
    return f"{int(step.terminated.sum())} episodes terminated, {int(step.truncated.sum())} truncated"


def _check_limit(history: History, limit: int) -> str:
    """Episodes that reach the limit are truncated there, and none before or after."""
    step, lengths = history.step, history.step.episode_length
    if (lengths > limit).any():
        raise Broken(f"an episode went on to {lengths.max()} steps, and the limit is {limit}")
    if (step.truncated & (lengths < limit)).any():
        raise Broken(
            f"an episode was truncated after {lengths[step.truncated].min()} steps, before the limit of {limit}"
        )
    reached = lengths == limit
    if not reached.any():
        raise DoesNotApply(f"no episode lasted {limit} steps in the {len(history.action)} steps played")
    if not step.truncated[reached].all():
        how = "terminated" if step.terminated[reached].any() else "went on"
        raise Broken(f"an episode {how} at its limit of {limit} steps and was not truncated")
    return f"{int(reached.sum())} episodes truncated at {limit}"


def check_final_obs(examined: Examination) -> str:
    """The final observation is that of the episode that ended, not the first of the next."""
    history = examined.episodes
    step, done = history.step, history.done
    if not np.array_equal(step.obs[~done], step.final_obs[~done], equal_nan=step.obs.dtype.kind == "f"):
        raise Broken("where no episode ended, obs and final_obs differ; both must be the next observation")
    if not done.any():
        raise DoesNotApply(f"no episode ended in {len(done)} steps")
    differ = (step.obs[done] != step.final_obs[done]).reshape(int(done.sum()), -1).any(axis=1)
    if not differ.any() and len(np.unique(step.obs.reshape(-1, *step.obs.shape[2:]), axis=0)) == 1:
        raise DoesNotApply("observations never change")
    if not differ.any() or (examined.subject.lasting and not differ.all()):
        raise Broken("final_obs is the first observation of the next episode: it was taken after the reset")
    return f"{int(done.sum())} ended episodes"


def check_statistics(examined: Examination) -> str:
    """Return and length are sums over the episode, this step included."""
    clipped = wrappers.value(examined.wrappers, "clip_reward") is not None
    for history in (examined.episodes, examined.short):
        step, done = history.step, history.done
        total, length = np.zeros(done.shape[1]), np.zeros(done.shape[1])
        for t in range(len(done)):
            total, length = total + step.reward[t], length + 1
            if not clipped and not np.allclose(step.episode_return[t], total, rtol=1e-4, atol=1e-4, equal_nan=True):
                raise Broken(f"episode_return is {step.episode_return[t]} in step {t + 1}, the rewards sum to {total}")
            if not np.array_equal(step.episode_length[t], length):
                raise Broken(f"episode_length is {step.episode_length[t]} in step {t + 1}, counted are {length}")
            total, length = np.where(done[t], 0, total), np.where(done[t], 0, length)
    return "as summed over the steps" if not clipped else "lengths; returns are in the law of clip_reward"


def check_independence(examined: Examination) -> str:
    """What one environment does, another does not notice."""
    mine, other = examined.short, examined.replayed(examined.short, _altered(examined))
    for name in ("final_obs", "reward"):
        a, b = getattr(mine.step, name)[:, 0], getattr(other.step, name)[:, 0]
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            raise Broken(
                f"{name} of the first environment changed in step {first(a != b)}, when others acted otherwise"
            )
    return f"{examined.subject.num_envs - 1} others acted otherwise"


def check_effect(examined: Examination) -> str:
    """What is done has an effect."""
    mine, other = examined.short, examined.replayed(examined.short, _altered(examined))
    if all(np.array_equal(a[:, 1:], b[:, 1:], equal_nan=True) for a, b in outcomes(mine, other)):
        raise Broken(f"neither observations nor rewards of {SHORT} steps depend on the actions")
    return "other actions give other outcomes"


def _altered(examined: Examination) -> np.ndarray:
    """The actions of the short history, with others in all environments but the first."""
    action = examined.short.action.copy()
    discrete = isinstance(examined.env.actions, Discrete)
    action[:, 1:] = (action[:, 1:] + 1) % examined.env.actions.size if discrete else -action[:, 1:]
    return action


def check_bounds(examined: Examination) -> str:
    """Actions beyond their bounds count as the bounds."""
    actions = examined.env.actions
    if not isinstance(actions, Box):
        raise DoesNotApply("its actions are discrete")
    low, high = np.array(actions.low, np.float32), np.array(actions.high, np.float32)
    beyond = examined.play(SHORT, at_random(examined.env, 3, factor=3.0))
    if not ((beyond.action > high) | (beyond.action < low)).any():
        raise DoesNotApply("its actions have no bounds")
    within = examined.replayed(beyond, np.clip(beyond.action, low, high))
    for name in ("final_obs", "reward"):
        a, b = getattr(beyond.step, name), getattr(within.step, name)
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            raise Broken(
                f"an action beyond its bounds gave another {name} than the bound itself, in step {first(a != b)}"
            )
    return f"{SHORT} steps of actions three times as large"


def check_torch(examined: Examination) -> str:
    """Served to PyTorch, it keeps shape and type of its observations."""
    env, num_envs = examined.env, examined.subject.num_envs
    if env.framework == "torch":
        raise DoesNotApply("it is native to PyTorch")
    other = envs.make(examined.subject.id, num_envs, "torch")
    state, noise = other.reset(other.random(0)), other.draw(other.random(1), 1)[0]
    following, step = other.step(state, native(other, examined.short.action[0]), noise)
    mine = (num_envs, *env.observation_shape), f"torch.{examined.short.first_obs.dtype}"
    for obs in (state.obs, following.obs, step.obs, step.final_obs):
        if (tuple(obs.shape), str(obs.dtype)) != mine:
            raise Broken(f"observations are {tuple(obs.shape)} of {obs.dtype} there, and {mine} in JAX")
    return "one step"


def outcomes(a: History, b: History) -> Sequence[tuple[np.ndarray, np.ndarray]]:
    """Field by field, the outcomes of two histories, as real numbers."""
    return [
        (np.asarray(x.astype(np.float64)), np.asarray(y.astype(np.float64)))
        for x, y in zip(a.step, b.step, strict=True)
    ]
