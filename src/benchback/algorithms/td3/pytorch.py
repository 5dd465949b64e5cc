"""TD3 in PyTorch: modules, optimisers, replay and generator are updated in place."""

from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from benchback.agent import (
    Agent,
    Counter,
    Data,
    Environment,
    HyperParameters,
    Metrics,
    Network,
    Optimiser,
    Randomness,
    Target,
)
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Experience, Transition, nan_metrics, to_experience
from benchback.algorithms.td3.config import Config, Hyper
from benchback.algorithms.td3.loss import (
    ACTOR_METRICS,
    HIDDEN_SCALE,
    METRICS,
    Minibatch,
    action_bounds,
    actor_loss,
    critic_loss,
    make_minibatches,
    mean_metrics,
)
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import MLP, Wrap
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math

ACTOR, CRITICS = ("actor",), ("critic1", "critic2")
"""The networks that each optimiser updates."""
TOWERS = {"actor_adam": ACTOR, "critic_adam": CRITICS}


class ActorCritic(nn.Module):
    """Separate networks for the actor and two critics."""

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], num_actions: int, dtype: torch.dtype, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.actor = MLP((inputs,), hidden, num_actions, 0.01, dtype, generator, "relu", HIDDEN_SCALE)
        self.critic1 = MLP((inputs + num_actions,), hidden, 1, 1.0, dtype, generator, "relu", HIDDEN_SCALE)
        self.critic2 = MLP((inputs + num_actions,), hidden, 1, 1.0, dtype, generator, "relu", HIDDEN_SCALE)

    def values(
        self, obs: Shaped[Tensor, "B *O"], action: Float[Tensor, "B A"]
    ) -> tuple[Float[Tensor, "B"], Float[Tensor, "B"]]:
        inputs = torch.cat([obs.flatten(1), action], -1)
        return self.critic1(inputs).squeeze(-1), self.critic2(inputs).squeeze(-1)

    def value(self, obs: Shaped[Tensor, "B *O"], action: Float[Tensor, "B A"]) -> Float[Tensor, "B"]:
        return self.critic1(torch.cat([obs.flatten(1), action], -1)).squeeze(-1)


def select(model: ActorCritic, towers: tuple[str, ...]) -> list[nn.Parameter]:
    return [param for name in towers for param in getattr(model, name).parameters()]


@dataclass
class State:
    model: Network[ActorCritic]
    target: Target[ActorCritic]
    actor_adam: Optimiser[math.AdamState]
    critic_adam: Optimiser[math.AdamState]
    replay: Data[math.Replay]
    replay_inserted: Counter[int]
    env: Environment[EnvState]
    generator: Randomness[torch.Generator]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, wrap: Wrap = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    bounds = action_bounds(math, env, dtype)
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    def init(generator: torch.Generator, hyper: Hyper) -> State:
        hyper = pytorch.as_data(hyper, dtype)
        model = ActorCritic(env.observation_size, config.hidden, env.actions.size, dtype, generator)
        target = deepcopy(model).requires_grad_(False)
        adams = actor_optimiser.init(select(model, ACTOR)), critic_optimiser.init(select(model, CRITICS))
        env_state = env.reset(generator)
        obs = env_state.obs[0]
        zero = obs.new_zeros((), dtype=dtype)
        row = Experience(obs, zero.expand(env.actions.size), zero, obs, zero.bool())
        replay = math.empty_replay(row, config.replay_capacity)
        return State(model, target, *adams, replay, 0, env_state, generator, hyper)

    def policy(model: ActorCritic, obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B A"]:
        return math.squash(model.actor(obs), bounds)

    def policy_step(
        model: ActorCritic, obs: Shaped[Tensor, "E *O"], noise: Float[Tensor, "3 E A"], scale: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "E A"]]:
        normal, uniform, at_random = noise.unbind()
        return (
            math.explore(policy(model, obs), math.ActingNoise(normal, uniform, at_random[0, 0] > 0), bounds, scale),
        )

    rollout_steps = pytorch.rollout_steps(env, policy_step, wrap)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        noise = math.acting_noise(state.generator, shape, state.replay_inserted, config.start_steps, dtype)
        # As one tensor: a compiled loop steps through tensors.
        at_random = noise.at_random[:, None, None].expand(shape).to(dtype)
        action_noise = torch.stack([noise.normal, noise.uniform, at_random], 1)
        scale = state.hyper.exploration_noise
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, action_noise), scale)
        return state, Transition(*outcome)

    @torch.no_grad()
    def td_target(target: ActorCritic, minibatch: Minibatch, hyper: Hyper) -> Float[Tensor, "B"]:
        noise = math.smoothing_noise(minibatch.noise, hyper.target_noise, hyper.target_noise_clip)
        next_action = math.add_noise(policy(target, minibatch.next_obs), noise, bounds)
        next_value1, next_value2 = target.values(minibatch.next_obs, next_action)
        return math.twin_target(minibatch.reward, minibatch.terminated, next_value1, next_value2, hyper.gamma)

    td_target = wrap("objective", td_target)

    def critic_objective(
        model: ActorCritic, minibatch: Minibatch, target: Float[Tensor, "B"]
    ) -> tuple[Float[Tensor, ""], Metrics]:
        return critic_loss(model.values(minibatch.obs, minibatch.action), target)

    critic_objective = wrap("objective", critic_objective)

    def critic_step(
        model: ActorCritic, target: ActorCritic, adam: math.AdamState, minibatch: Minibatch, hyper: Hyper
    ) -> Metrics:
        loss, metrics = critic_objective(model, minibatch, td_target(target, minibatch, hyper))
        params = select(model, CRITICS)
        norm = critic_optimiser.update(torch.autograd.grad(loss, params), adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"critic_grad_norm": norm}

    critic_step = wrap("minibatch_step", critic_step)

    def actor_objective(model: ActorCritic, obs: Shaped[Tensor, "B *O"]) -> tuple[Float[Tensor, ""], Metrics]:
        return actor_loss(model.value(obs, policy(model, obs)))

    actor_objective = wrap("objective", actor_objective)

    def actor_step(
        model: ActorCritic, target: ActorCritic, adam: math.AdamState, obs: Shaped[Tensor, "B *O"], hyper: Hyper
    ) -> Metrics:
        loss, metrics = actor_objective(model, obs)
        params = select(model, ACTOR)
        norm = actor_optimiser.update(torch.autograd.grad(loss, params), adam, params, hyper=hyper)
        math.polyak(target, model, 1 - hyper.polyak)
        return {name: x.detach() for name, x in metrics.items()} | {"actor_grad_norm": norm}

    actor_step = wrap("minibatch_step", actor_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        return state, gradient_step(state, minibatch, int(state.critic_adam.count))

    def gradient_step(state: State, minibatch: Minibatch, count: int) -> Metrics:
        metrics = critic_step(state.model, state.target, state.critic_adam, minibatch, state.hyper)
        if count % config.policy_delay:
            return metrics | nan_metrics(torch.full, ACTOR_METRICS, dtype)
        return metrics | actor_step(state.model, state.target, state.actor_adam, minibatch.obs, state.hyper)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        math.insert(state.replay, state.replay_inserted, to_experience(batch, config))
        state.replay_inserted += config.batch_size
        if state.replay_inserted < config.update_after:
            return state, nan_metrics(torch.full, METRICS, dtype) | episode_metrics(math, batch)
        index = math.sample_indices(state.generator, state.replay, state.replay_inserted, (config.gradient_rows,))
        shape = config.num_updates, config.minibatch_size, env.actions.size
        noise = math.gaussian.noise(state.generator, shape, dtype)
        data = make_minibatches(math.gather(state.replay, index), noise, config)
        # The only synchronisation with the device: from here on Python counts the steps itself.
        count = int(state.critic_adam.count)
        losses = [gradient_step(state, Minibatch(*row), count + i) for i, row in enumerate(zip(*data, strict=True))]
        stacked = {name: torch.stack([x[name] for x in losses]) for name in METRICS}
        return state, mean_metrics(math, stacked) | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, memory: tuple[()], obs: Shaped[Tensor, "B *O"]) -> tuple[tuple[()], Float[Tensor, "B A"]]:
        return memory, policy(state.model, obs)

    return torch_state.agent(
        State, config, env, make=make, towers=TOWERS, init=init, rollout=rollout, update=update, learn=learn, act=act
    )
