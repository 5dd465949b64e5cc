"""Wrappers of external environments, in Python; only a time limit is below the reset, among the copies."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchback.envs.external import Copies, ExternalEnv
from benchback.envs.interface import Discrete, Env, EnvState, Step
from benchback.envs.wrappers import Wrapper
from benchback.envs.wrappers.arrays import StickyParts, clip_reward, frame_stack, observe, sticky_actions, suite_state

STICKY = 1
"""Makes the random stream of sticky actions another than any that a suite makes of the same seed."""


class WrappedExternal(ExternalEnv):
    """An external environment whose outcomes pass through wrappers; their state stays in Python, too."""

    def __init__(self, within: ExternalEnv, wrappers: Sequence[Wrapper]) -> None:
        env = wrap(_as_env(within), wrappers)
        super().__init__(within.id, within.num_envs, within.copies._replace(observation_shape=env.observation_shape))
        self.env = env
        self.transfer_stats = within.transfer_stats

    def reset(self, seed: int) -> tuple[int, np.ndarray]:
        """The index of the next step, and the first observations of new episodes."""
        self._generator = np.random.default_rng([seed, STICKY])
        return self._at(self.env.reset(seed)), self._state.obs

    def step(self, step_index: int, action: np.ndarray) -> tuple[int, Step]:
        """The index of the next step, and the outcome."""
        self.check_latest(step_index)
        state, outcome = self.env.step(self._state, action, self.env.draw(self._generator, 1)[0])
        if not (outcome.terminated | outcome.truncated).any():
            outcome = outcome._replace(obs=outcome.final_obs)  # one array is transferred once
        return self._at(state), outcome

    def _at(self, state: EnvState) -> int:
        self._state, self.step_index = state, suite_state(state.inner)
        return self.step_index


def wrap(env: Env, wrappers: Sequence[Wrapper]) -> Env:
    """The environment with all wrappers but a time limit."""
    for name, value in wrappers:
        match name:
            case "clip_reward":
                env = clip_reward(env, np, value)
            case "frame_stack":
                env = frame_stack(env, np, value)
            case "observe":
                env = observe(env, np, value)
            case "sticky_actions":
                env = sticky_actions(env, np, value, _sticky_parts(env))
    return env


def limited(copies: Copies, num_envs: int, limit: int) -> Copies:
    """Copies whose episodes are truncated after `limit` steps."""
    steps = np.zeros(num_envs, np.int64)

    def start(seed: int) -> np.ndarray:
        steps[:] = 0
        return copies.start(seed)

    def advance(action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        obs, reward, terminated, truncated = copies.advance(action)
        steps[:] += 1
        return obs, reward, terminated, truncated | (steps >= limit)

    def restart(index: np.ndarray) -> np.ndarray:
        steps[index] = 0
        return copies.restart(index)

    return copies._replace(start=start, advance=advance, restart=restart)


def _as_env(external: ExternalEnv) -> Env:
    """The environment as an Env of NumPy arrays; its source of randomness is a seed, and its state an index."""
    num_envs = external.num_envs

    def reset(seed: int) -> EnvState:
        step_index, obs = external.reset(seed)
        return EnvState(step_index, obs, np.zeros(num_envs, np.float32), np.zeros(num_envs, np.int32))

    def draw(generator: np.random.Generator, num_steps: int) -> np.ndarray:
        return np.zeros((num_steps, num_envs, 0))

    def step(state: EnvState, action: np.ndarray, noise: np.ndarray) -> tuple[EnvState, Step]:
        step_index, outcome = external.step(state.inner, action)
        ongoing = ~(outcome.terminated | outcome.truncated)
        statistics = outcome.episode_return * ongoing, outcome.episode_length * ongoing
        return EnvState(step_index, outcome.obs, *statistics), outcome

    copies = external.copies
    shape = copies.observation_shape
    return Env(external.id, "numpy", num_envs, shape, copies.actions, int, reset, draw, step, external)


def _sticky_parts(env: Env) -> StickyParts:
    shape = (env.num_envs,) if isinstance(env.actions, Discrete) else (env.num_envs, env.actions.size)

    def draw(generator: np.random.Generator, num_steps: int) -> np.ndarray:
        uniform = generator.random((num_steps, env.num_envs, 1))
        return np.concatenate([env.draw(generator, num_steps), uniform], -1)

    def split(noise: np.ndarray) -> tuple[Any, np.ndarray]:
        return noise[:, :-1], noise[:, -1]

    def no_action(state: EnvState) -> np.ndarray:
        return np.zeros(shape, np.int64 if isinstance(env.actions, Discrete) else np.float32)

    return StickyParts(draw, split, no_action, lambda x, other: x.astype(other.dtype))
