"""Atari by envpool: CPU time of CleanRL's published PPO on Pong, here, in Stable-Baselines3 and as a plain loop.

`python benchmarks/atari.py` prints the table of docs/networks.md. The sides take turns, an iteration each, in one
process with one thread, and each has a first one that is not counted. The plain loop does in PyTorch what CleanRL's
`ppo_atari_envpool` does, without its log and its video. JAX has reordered gradients: without them an
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
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

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
    from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]

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


def layer(made: Any, scale: float = 2**0.5) -> Any:
    """The layer with orthogonal weights and no bias at first."""
    nn.init.orthogonal_(made.weight, scale)
    nn.init.zeros_(made.bias)
    return made


class PlainLoop:
    """CleanRL's procedure, step after step: floats of images, one value with each action, advantages in a loop."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.config: Any = Run.from_dict(read_config(CONFIG)).config
        threads = {"num_threads": 1, "seed": 0}
        self.pool: Any = envpool.make(
            "Pong-v5", "gymnasium", num_envs=self.config.num_envs, episodic_life=True, reward_clip=True, **threads
        )
        convolutions = (nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1))
        layers = [part for each in convolutions for part in (layer(each), nn.ReLU())]
        self.trunk = nn.Sequential(*layers, nn.Flatten(), layer(nn.Linear(64 * 7 * 7, 512)), nn.ReLU())
        self.actor, self.critic = layer(nn.Linear(512, 6), 0.01), layer(nn.Linear(512, 1), 1.0)
        self.weights = [x for part in (self.trunk, self.actor, self.critic) for x in part.parameters()]
        self.adam = torch.optim.Adam(self.weights, lr=self.config.learning_rate, eps=self.config.adam_epsilon)
        self.obs, self.done = torch.Tensor(self.pool.reset()[0]), torch.zeros(self.config.num_envs)
        self.iteration = 0

    def __call__(self) -> None:
        """An iteration: a rollout and all gradient steps on it."""
        left = 1 - self.iteration / self.config.num_iterations
        self.adam.param_groups[0]["lr"] = left * self.config.learning_rate
        batch = {name: x.flatten(0, 1) for name, x in self.rollout().items()}
        for _ in range(self.config.num_epochs):
            for index in torch.randperm(self.config.batch_size).chunk(self.config.num_minibatches):
                self.learn({name: x[index] for name, x in batch.items()})
        self.iteration += 1

    def evaluated(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        hidden = self.trunk(obs / 255.0)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).flatten()

    @torch.no_grad()
    def rollout(self) -> dict[str, Tensor]:
        """The steps of all environments, with advantages and targets."""
        steps: list[dict[str, Tensor]] = []
        for _ in range(self.config.num_steps):
            policy, value = self.evaluated(self.obs)
            action = policy.sample()
            step = {"obs": self.obs, "done": self.done, "action": action, "value": value}
            obs, reward, terminated, truncated, _ = self.pool.step(action.numpy())
            self.obs, self.done = torch.Tensor(obs), torch.Tensor(terminated | truncated)
            steps.append(step | {"log_prob": policy.log_prob(action), "reward": torch.Tensor(reward)})
        batch = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        batch["advantage"] = self.advantages(batch, self.evaluated(self.obs)[1])
        batch["target"] = batch["advantage"] + batch["value"]
        return batch

    def advantages(self, batch: dict[str, Tensor], following: Tensor) -> Tensor:
        """Generalised advantage estimates; where an episode ended, for whatever reason, nothing follows."""
        advantage, later, done = torch.zeros_like(batch["reward"]), torch.zeros_like(following), self.done
        for t in reversed(range(self.config.num_steps)):
            delta = batch["reward"][t] + self.config.gamma * following * (1 - done) - batch["value"][t]
            later = delta + self.config.gamma * self.config.gae_lambda * (1 - done) * later
            advantage[t], following, done = later, batch["value"][t], batch["done"][t]
        return advantage

    def learn(self, batch: dict[str, Tensor]) -> None:
        """One gradient step."""
        clip, (policy, value) = self.config.clip, self.evaluated(batch["obs"])
        ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]).exp()
        advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        clipped = batch["value"] + (value - batch["value"]).clamp(-clip, clip)
        value_loss = 0.5 * torch.max((value - batch["target"]) ** 2, (clipped - batch["target"]) ** 2).mean()
        loss = policy_loss + self.config.value_coefficient * value_loss
        loss = loss - self.config.entropy_coefficient * policy.entropy().mean()
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, self.config.max_grad_norm)
        self.adam.step()


SIDES: dict[str, Callable[[], Callable[[], None]]] = {
    "pytorch, none": lambda: ours("pytorch", "none"),
    "plain loop": PlainLoop,
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
    torch.set_num_threads(1)
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
