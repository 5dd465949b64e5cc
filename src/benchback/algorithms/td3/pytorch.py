"""TD3 in PyTorch: modules, optimisers, a replay and a generator that change in place."""

from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Experience, Transition, remembered
from benchback.algorithms.td3.config import Config, Hyper
from benchback.algorithms.td3.loss import (
    ACTOR_METRICS,
    METRICS,
    Minibatch,
    action_bounds,
    actor_loss,
    averaged,
    critic_loss,
    critic_target,
    minibatches,
    smoothed,
)
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import MLP, Replace
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math
from benchback.math.torch.optimisers import AdamState

ACTOR, CRITICS = ("actor",), ("critic1", "critic2")
"""The towers that each optimiser moves."""
TOWERS = {"actor_adam": ACTOR, "critic_adam": CRITICS}


class ActorCritic(nn.Module):
    """Separate towers for the policy and two values."""

    def __init__(
        self, size: int, hidden: tuple[int, ...], num_actions: int, dtype: torch.dtype, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.actor = MLP(size, hidden, num_actions, 0.01, dtype, generator, "relu")
        self.critic1 = MLP(size + num_actions, hidden, 1, 1.0, dtype, generator, "relu")
        self.critic2 = MLP(size + num_actions, hidden, 1, 1.0, dtype, generator, "relu")

    def head(self, obs: Shaped[Tensor, "*B O"]) -> Float[Tensor, "*B A"]:
        return self.actor(obs)

    def values(
        self, obs: Shaped[Tensor, "*B O"], action: Float[Tensor, "*B A"]
    ) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
        both = torch.cat([obs, action], -1)
        return self.critic1(both).squeeze(-1), self.critic2(both).squeeze(-1)

    def value(self, obs: Shaped[Tensor, "*B O"], action: Float[Tensor, "*B A"]) -> Float[Tensor, "*B"]:
        return self.critic1(torch.cat([obs, action], -1)).squeeze(-1)


def part(model: ActorCritic, towers: tuple[str, ...]) -> list[nn.Parameter]:
    return [param for name in towers for param in getattr(model, name).parameters()]


@dataclass
class State:
    model: ActorCritic
    target: ActorCritic
    actor_adam: AdamState
    critic_adam: AdamState
    replay: math.Replay
    env: EnvState
    generator: torch.Generator
    hyper: Hyper


def make(config: Config, env: Env, put: Replace = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    bounds = action_bounds(math, env, dtype)
    actor_optimiser, critic_optimiser = (
        math.adam(anneal=False, steps_per_iteration=1, num_iterations=1, clip=False, rate=rate)
        for rate in ("actor_learning_rate", "critic_learning_rate")
    )

    def init(seed: int, weights: Weights | None = None) -> State:
        generator = env.random(seed)
        model = ActorCritic(env.observation_size, config.hidden, env.actions.size, dtype, generator)
        adams = actor_optimiser.init(part(model, ACTOR)), critic_optimiser.init(part(model, CRITICS))
        env_state = env.reset(generator)
        replay = math.empty_replay(example(env_state.obs[0]), config.replay_capacity)
        target = deepcopy(model).requires_grad_(False)
        hyper = pytorch.as_data(config.hyper, dtype)
        return torch_state.transplant(
            weights, State(model, target, *adams, replay, env_state, generator, hyper), TOWERS
        )

    def example(obs: Shaped[Tensor, "O"]) -> Experience:
        action, reward = obs.new_zeros(env.actions.size, dtype=dtype), obs.new_zeros((), dtype=dtype)
        return Experience(obs, action, reward, obs, obs.new_zeros((), dtype=torch.bool))

    def policy(model: ActorCritic, obs: Shaped[Tensor, "*B O"]) -> Float[Tensor, "*B A"]:
        return math.squash(model.head(obs), bounds)

    def policy_step(
        model: ActorCritic, obs: Shaped[Tensor, "E O"], noise: tuple[math.ActingNoise, Float[Tensor, ""]]
    ) -> tuple[Float[Tensor, "E A"]]:
        exploration, scale = noise
        return (math.explore(policy(model, obs), exploration, bounds, scale),)

    rollout_steps = pytorch.rollout_steps(env, policy_step, put)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        noise = math.acting_noise(state.generator, shape, state.replay.inserted, config.start_steps, dtype)
        scale = state.hyper.exploration_noise
        action_noise = [(math.ActingNoise(*step), scale) for step in zip(*noise, strict=True)]
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, action_noise))
        return state, Transition(*outcome)

    @torch.no_grad()
    def aim(target: ActorCritic, minibatch: Minibatch, hyper: Hyper) -> Float[Tensor, "B"]:
        action = smoothed(math, policy(target, minibatch.next_obs), minibatch.noise, bounds, hyper)
        return critic_target(math, target.values(minibatch.next_obs, action), minibatch, hyper)

    aim = put("objective", aim)

    def critic_objective(
        model: ActorCritic, minibatch: Minibatch, target: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, ""], Metrics]:
        return critic_loss(model.values(minibatch.obs, minibatch.action), target)

    critic_objective = put("objective", critic_objective)

    def critic_step(
        model: ActorCritic, target: ActorCritic, adam: AdamState, minibatch: Minibatch, hyper: Hyper
    ) -> Metrics:
        loss, metrics = critic_objective(model, minibatch, aim(target, minibatch, hyper))
        params = part(model, CRITICS)
        norm = critic_optimiser.update(torch.autograd.grad(loss, params), adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"critic_grad_norm": norm}

    critic_step = put("minibatch_step", critic_step)

    def actor_objective(model: ActorCritic, obs: Shaped[Tensor, "B O"]) -> tuple[Float[Tensor, ""], Metrics]:
        return actor_loss(model.value(obs, policy(model, obs)))

    actor_objective = put("objective", actor_objective)

    def actor_step(
        model: ActorCritic, target: ActorCritic, adam: AdamState, obs: Shaped[Tensor, "B O"], hyper: Hyper
    ) -> Metrics:
        loss, metrics = actor_objective(model, obs)
        params = part(model, ACTOR)
        norm = actor_optimiser.update(torch.autograd.grad(loss, params), adam, params, hyper=hyper)
        math.polyak(target, model, 1 - hyper.polyak)
        return {name: x.detach() for name, x in metrics.items()} | {"actor_grad_norm": norm}

    actor_step = put("minibatch_step", actor_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        return state, gradient_step(state, minibatch, int(state.critic_adam.count))

    def gradient_step(state: State, minibatch: Minibatch, count: int) -> Metrics:
        metrics = critic_step(state.model, state.target, state.critic_adam, minibatch, state.hyper)
        if count % config.policy_delay:
            return metrics | unknown(ACTOR_METRICS)
        return metrics | actor_step(state.model, state.target, state.actor_adam, minibatch.obs, state.hyper)

    def unknown(names: tuple[str, ...]) -> Metrics:
        return dict.fromkeys(names, torch.full((), torch.nan, dtype=dtype))

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        replay = math.insert(state.replay, remembered(batch, config))
        if replay.inserted < config.update_after:
            return state, unknown(METRICS) | episode_metrics(math, batch)
        index = math.sample_indices(state.generator, replay, (config.gradient_rows,))
        shape = config.num_updates, config.minibatch_size, env.actions.size
        noise = math.gaussian.noise(state.generator, shape, dtype)
        data = minibatches(math.gather(replay, index), noise, config)
        # The only wait for the device: from here on Python counts along.
        count = int(state.critic_adam.count)
        losses = [gradient_step(state, Minibatch(*row), count + i) for i, row in enumerate(zip(*data, strict=True))]
        stacked = {name: torch.stack([x[name] for x in losses]) for name in METRICS}
        return state, averaged(math, stacked) | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, obs: Shaped[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        return policy(state.model, obs)

    def export(state: State) -> Weights:
        return torch_state.export(state, TOWERS)

    return Agent(
        init=init,
        rollout=rollout,
        update=update,
        learn=learn,
        act=act,
        export=export,
        within=lambda put: make(config, env, put),
    )
