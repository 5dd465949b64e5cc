"""PPO in straightforward eager PyTorch, as a baseline: the way a first comparison of frameworks is often written.

JAX environment over DLPack with keys split in Python, a Python loop for the advantages, six `.item()` per
minibatch, Adam and LambdaLR as they come.
"""

from types import SimpleNamespace
from typing import Any

import gymnax
import jax
import torch
from measuring import main, time_after_warm_up  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn
from torch.distributions import Categorical


def tower(inputs: int, hidden_sizes: list[int], outputs: int, head_scale: float) -> nn.Sequential:
    """Tanh layers with orthogonal weights, and a head."""
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers += [dense(inputs, size, 2**0.5), nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers, dense(inputs, outputs, head_scale))


def dense(inputs: int, outputs: int, scale: float) -> nn.Linear:
    """An orthogonal layer without bias at first."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, scale)
    nn.init.zeros_(layer.bias)
    return layer


class Trainer:
    """The state of one training."""

    def __init__(self, work: SimpleNamespace) -> None:
        torch.manual_seed(work.seed)
        self.work = work
        self.env, self.params = gymnax.make(work.env)
        self.step = jax.jit(jax.vmap(self.env.step, in_axes=(0, 0, 0, None)))
        self.key, key = jax.random.split(jax.random.PRNGKey(work.seed))
        reset = jax.vmap(self.env.reset, in_axes=(0, None))
        obs, self.env_state = reset(jax.random.split(key, work.num_envs), self.params)
        self.obs = to_torch(obs).flatten(1).float()
        self.actor = tower(self.obs.shape[1], work.hidden_sizes, self.env.num_actions, 0.01)
        self.critic = tower(self.obs.shape[1], work.hidden_sizes, 1, 1.0)
        self.weights = [*self.actor.parameters(), *self.critic.parameters()]
        self.adam = torch.optim.Adam(self.weights, lr=work.learning_rate, eps=work.adam_epsilon)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.adam, lambda iteration: 1.0)
        self.episode_return = torch.zeros(work.num_envs)
        self.finished: list[float] = []
        self.metrics: list[list[float]] = []

    def advance(self, iterations: int) -> None:
        """Train for some iterations."""
        for _ in range(iterations):
            self.update(self.rollout())
            self.schedule.step()

    @torch.no_grad()
    def rollout(self) -> dict[str, Tensor]:
        """num_steps of all environments, with advantages and targets."""
        steps: list[dict[str, Tensor]] = []
        for _ in range(self.work.num_steps):
            policy = Categorical(logits=self.actor(self.obs))
            action = policy.sample()
            value = self.critic(self.obs).squeeze(-1)
            step = {"obs": self.obs, "action": action, "log_prob": policy.log_prob(action), "value": value}
            reward, done = self.step_env(action)
            steps.append(step | {"reward": reward, "done": done})
        batch = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        batch["advantage"] = self.advantages(batch, self.critic(self.obs).squeeze(-1))
        batch["target"] = batch["advantage"] + batch["value"]
        return {name: x.flatten(0, 1) for name, x in batch.items()}

    def step_env(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """One step of all environments; observation, reward and done come back over DLPack."""
        self.key, key = jax.random.split(self.key)
        keys = jax.random.split(key, self.work.num_envs)
        outcome = self.step(keys, self.env_state, jax.dlpack.from_dlpack(action.int()), self.params)
        obs, self.env_state, reward, terminated, truncated, _ = outcome
        self.obs = to_torch(obs).flatten(1).float()
        reward = to_torch(reward).float()
        done = to_torch((terminated | truncated).astype("int32")).float()
        self.episode_return += reward
        self.finished += self.episode_return[done > 0].tolist()
        self.episode_return *= 1 - done
        return reward, done

    def advantages(self, batch: dict[str, Tensor], next_value: Tensor) -> Tensor:
        """Generalised advantage estimates, one step after another."""
        advantage, later = torch.zeros_like(batch["reward"]), torch.zeros_like(next_value)
        for t in reversed(range(self.work.num_steps)):
            going_on = 1 - batch["done"][t]
            delta = batch["reward"][t] + self.work.gamma * next_value * going_on - batch["value"][t]
            later = delta + self.work.gamma * self.work.gae_lambda * going_on * later
            advantage[t], next_value = later, batch["value"][t]
        return advantage

    def update(self, batch: dict[str, Tensor]) -> None:
        """All epochs of gradient steps."""
        batch_size = self.work.num_envs * self.work.num_steps
        for _ in range(self.work.num_epochs):
            for index in torch.randperm(batch_size).chunk(self.work.num_minibatches):
                self.learn({name: x[index] for name, x in batch.items()})

    def learn(self, batch: dict[str, Tensor]) -> None:
        """One gradient step."""
        work = self.work
        policy = Categorical(logits=self.actor(batch["obs"]))
        value = self.critic(batch["obs"]).squeeze(-1)
        log_ratio = policy.log_prob(batch["action"]) - batch["log_prob"]
        ratio = log_ratio.exp()
        advantage = batch["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        bounded = ratio.clamp(1 - work.clip, 1 + work.clip)
        actor_loss = -torch.min(ratio * advantage, bounded * advantage).mean()
        clipped = batch["value"] + (value - batch["value"]).clamp(-work.clip, work.clip)
        value_loss = 0.5 * torch.max((value - batch["target"]) ** 2, (clipped - batch["target"]) ** 2).mean()
        entropy = policy.entropy().mean()
        loss = actor_loss + work.value_coefficient * value_loss - work.entropy_coefficient * entropy
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights, work.max_grad_norm)
        self.adam.step()
        clip_fraction = ((ratio - 1).abs() > work.clip).float().mean()
        shown = (loss, actor_loss, value_loss, entropy, -log_ratio.mean(), clip_fraction)
        self.metrics.append([x.item() for x in shown])


def to_torch(x: jax.Array) -> Tensor:
    """A JAX array as a tensor, over DLPack."""
    return torch.from_dlpack(x)


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train once; the return is that of the last hundred episodes."""
    trainer = Trainer(work)
    times = time_after_warm_up(trainer.advance, work)
    last = trainer.finished[-100:]
    episode_return = sum(last) / len(last) if last else float("nan")
    config = {name: x for name, x in vars(work).items() if name != "seed"}
    found = {"episode_return": episode_return, "config": config | {"truncation": "terminal"}}
    return times | found | {"env_alone": lambda: alone_s(work)}


def alone_s(work: SimpleNamespace) -> float:
    """Seconds of a step of all environments as one compiled loop."""
    from purejax_style import LoggedEnv  # pyright: ignore[reportMissingImports]

    return LoggedEnv(work.env).alone_s(work.num_envs)


if __name__ == "__main__":
    main(measure)
