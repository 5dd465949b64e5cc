"""envpool environments: copies stepped together in C++ threads, as many as the run's other libraries may use.

envpool resets an ended episode in the next step, which ignores its action and has reward 0. Here the ended copies, and
only those, are reset at once, so that this step never appears. Importing envpool imports JAX, so with envpool PyTorch
is measured with JAX in the process. Images of Atari are stacks of frames, `[4, 84, 84]`; here the channels are last,
`[84, 84, 4]`, as in every other suite.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import envpool
import numpy as np

from benchback.envs.external import Copies
from benchback.envs.gymnasium import actions_of, layout
from benchback.errors import InputError, near


def check(name: str) -> None:
    """Raise an InputError that suggests a near name unless envpool has `name`."""
    known = envpool.list_all_envs()
    if name not in known:
        found = near(name, known)
        meant = f"did you mean envpool/{found}?" if found else "envpool.list_all_envs() names them"
        raise InputError(f"env=envpool/{name[:100]} is not one of envpool's; {meant}")


@cache
def kind(name: str) -> Literal["discrete", "box"]:
    """The kind of actions of the environment."""
    return actions_of(_spaces(name)[1], f"envpool/{name}").kind


def make(name: str, num_envs: int) -> Copies:
    """The environment `name`, `num_envs` times."""
    observations, choices = _spaces(name)
    shape, dtype = layout(observations, f"envpool/{name}")
    frames_first = len(shape) == 3 and shape[0] < shape[2]
    pool: Any = None

    def prepared(obs: np.ndarray) -> np.ndarray:
        obs = obs.astype(dtype, copy=False)
        return np.ascontiguousarray(obs.transpose(0, 2, 3, 1)) if frames_first else obs

    def start(seed: int) -> np.ndarray:
        nonlocal pool
        seeds = (np.random.SeedSequence(seed).generate_state(num_envs) >> 1).tolist()
        threads = min(int(os.environ.get("OMP_NUM_THREADS", num_envs)), num_envs)
        # A pool is seeded at construction.
        with _unwarned():
            pool = envpool.make(name, "gymnasium", num_envs=num_envs, num_threads=threads, seed=seeds)
            return prepared(pool.reset()[0])

    def advance(action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        obs, reward, terminated, truncated, _ = pool.step(action.reshape(num_envs, *choices.shape))
        return prepared(obs), reward.astype(np.float32, copy=False), terminated, truncated

    def restart(index: np.ndarray) -> np.ndarray:
        obs, info = pool.reset(index.astype(np.int32))
        # They return in arbitrary order.
        return prepared(obs)[np.argsort(info["env_id"])]

    shape = (*shape[1:], shape[0]) if frames_first else shape
    return Copies(shape, dtype, actions_of(choices, f"envpool/{name}"), start, advance, restart)


@cache
def _spaces(name: str) -> tuple[Any, Any]:
    with _unwarned():
        spec = envpool.make_spec(name)
        return spec.gymnasium_observation_space, spec.gymnasium_action_space


@contextmanager
def _unwarned() -> Iterator[None]:
    """Context without warnings about bounds rounded to float32."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered")
        yield
