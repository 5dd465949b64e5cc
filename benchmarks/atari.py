"""Atari by envpool: CPU time of CleanRL's published PPO on Pong, here and in Stable-Baselines3.

`python benchmarks/atari.py` prints the table of docs/networks.md. The sides take turns, an iteration each, in one
process with one thread, and each has a first one that is not counted. JAX has reordered gradients: without them an
iteration did not end in two minutes. Stable-Baselines3 is no dependency:
`pip install --no-deps --target FOLDER stable-baselines3==2.9.2`, then PYTHONPATH=FOLDER.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import envpool
import numpy as np

from benchback.agent import start
from benchback.cli.arguments import limit_threads
from benchback.training import advance
from benchback.training.run import Run, build
from benchback.training.run_dir import read_config

CONFIG = Path(__file__).parent.parent / "docs" / "networks" / "atari.yaml"
STABLE_BASELINES3 = "stable-baselines3"


def ours(backend: str, mode: str, gradients: str = "framework") -> Callable[[], None]:
    """An iteration of the published procedure in one of our backends."""
    run = Run.from_dict(read_config(CONFIG) | {"backend": backend, "mode": mode, "gradients": gradients})
    agent, framework = build(run)
    state = start(agent, 0)

    def iterate() -> None:
        nonlocal state
        state, metrics = advance(agent, state)
        framework.fetch(metrics)
        framework.block(state)

    return iterate


def theirs() -> Callable[[], None]:
    """An iteration of the same procedure in Stable-Baselines3, on the same pool of environments."""
    import torch
    from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    config: Any = Run.from_dict(read_config(CONFIG)).config
    ppo = PPO(
        "CnnPolicy",
        pool(config.num_envs),
        learning_rate=config.learning_rate,
        n_steps=config.num_steps,
        batch_size=config.batch_size // config.num_minibatches,
        n_epochs=config.num_epochs,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip,
        clip_range_vf=config.clip,
        ent_coef=config.entropy_coefficient,
        vf_coef=config.value_coefficient / 2,  # their value loss is the squared error, ours half of it
        max_grad_norm=config.max_grad_norm,
        device="cpu",
        seed=0,
    )
    return lambda: ppo.learn(config.batch_size, reset_num_timesteps=False) and None


def pool(num_envs: int) -> Any:
    """Pong as a vectorised environment of Stable-Baselines3; ended copies are reset at once, as there."""
    from stable_baselines3.common.vec_env import VecEnv  # pyright: ignore[reportMissingImports]

    class Pool(VecEnv):
        def __init__(self) -> None:
            self.pool = envpool.make("Pong-v5", "gymnasium", num_envs=num_envs, num_threads=1, seed=0)
            super().__init__(num_envs, self.pool.observation_space, self.pool.action_space)

        def reset(self) -> np.ndarray:
            return self.pool.reset()[0]

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            obs, reward, terminated, truncated, _ = self.pool.step(self.actions)
            done, told = terminated | truncated, [{} for _ in range(num_envs)]
            ended = np.flatnonzero(done).astype(np.int32)
            for i in ended:
                told[i] = {"terminal_observation": obs[i], "TimeLimit.truncated": bool(truncated[i])}
            if len(ended):
                first, about = self.pool.reset(ended)
                obs = obs.copy()
                obs[about["env_id"]] = first
            return obs, reward, done, told

        def close(self) -> None: ...
        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self, attr_name, None)] * num_envs

        def set_attr(self, *arguments: Any) -> None: ...
        def env_method(self, *arguments: Any, **named: Any) -> list[Any]:
            return []

        def env_is_wrapped(self, *arguments: Any) -> list[bool]:
            return [False] * num_envs

    return Pool()


SIDES: dict[str, Callable[[], Callable[[], None]]] = {
    "pytorch, none": lambda: ours("pytorch", "none"),
    STABLE_BASELINES3: theirs,
    "purejax, jit, reordered": lambda: ours("purejax", "jit", "reordered"),
    "equinox, flatten, reordered": lambda: ours("equinox", "flatten", "reordered"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sides", nargs="*", default=list(SIDES), choices=SIDES)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    limit_threads(1)
    seconds: dict[str, list[float]] = {name: [] for name in flags.sides}
    iterate = {name: SIDES[name]() for name in flags.sides}
    for turn in range(1 + flags.rounds):
        for name in flags.sides if turn % 2 else reversed(flags.sides):
            began = time.process_time()
            iterate[name]()
            if turn:
                seconds[name].append(time.process_time() - began)
            print(f"{name}: {time.process_time() - began:.1f} s", flush=True)
    steps: int = Run.from_dict(read_config(CONFIG)).config.batch_size
    for name, each in seconds.items():
        median = statistics.median(each)
        print(f"| {name} | {median:.1f} | {min(each):.1f} to {max(each):.1f} | {steps / median:.0f} |")


if __name__ == "__main__":
    main()
