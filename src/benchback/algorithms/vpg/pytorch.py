"""VPG in PyTorch: a module, an optimiser and a generator that change in place."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.onpolicy import Transition, distribution
from benchback.algorithms.vpg.config import Config, Hyper
from benchback.algorithms.vpg.loss import Minibatch, learnable, policy_change, policy_loss, value_loss
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import MLP, Replace
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math
from benchback.math.torch.optimisers import AdamState


class ActorCritic(nn.Module):
    """Separate towers for policy and value."""

    def __init__(
        self,
        observation_size: int,
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: torch.dtype,
        initial_log_std: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.actor = MLP(observation_size, hidden, num_actions, 0.01, dtype, generator)
        self.critic = MLP(observation_size, hidden, 1, 1.0, dtype, generator)
        # Of real-valued actions.
        self.log_std = None
        if initial_log_std is not None:
            start = torch.full((num_actions,), initial_log_std, dtype=dtype, device=generator.device)
            self.log_std = nn.Parameter(start)

    def policy(self, obs: Shaped[Tensor, "*B O"]) -> Float[Tensor, "*B P"]:
        out = self.actor(obs)
        return out if self.log_std is None else math.gaussian.parameters(out, self.log_std)

    def value(self, obs: Shaped[Tensor, "*B O"]) -> Float[Tensor, "*B"]:
        return self.critic(obs).squeeze(-1)


TOWERS = {"actor_adam": ("actor", "log_std"), "critic_adam": ("critic",)}
"""Optimiser -> what it optimises."""


def optimised(model: ActorCritic, adam: str) -> list[Tensor]:
    return [p for name, p in model.named_parameters() if name.split(".")[0] in TOWERS[adam]]


@dataclass
class State:
    model: ActorCritic
    actor_adam: AdamState
    critic_adam: AdamState
    env: EnvState
    generator: torch.Generator
    hyper: Hyper


def make(config: Config, env: Env, put: Replace = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    policy = distribution(math, env.actions)
    initial_log_std = None if env.actions.kind == "discrete" else config.initial_log_std
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    def init(seed: int, weights: Weights | None = None) -> State:
        generator = env.random(seed)
        size = env.observation_size
        model = ActorCritic(size, config.hidden, env.actions.size, dtype, initial_log_std, generator)
        actor_adam = actor_optimiser.init(optimised(model, "actor_adam"))
        critic_adam = critic_optimiser.init(optimised(model, "critic_adam"))
        hyper = pytorch.as_data(config.hyper, dtype)
        state = State(model, actor_adam, critic_adam, env.reset(generator), generator, hyper)
        return torch_state.transplant(weights, state, TOWERS)

    def choose(
        model: ActorCritic, obs: Shaped[Tensor, "E O"], noise: Float[Tensor, "E A"]
    ) -> tuple[Shaped[Tensor, "E *A"], Float[Tensor, "E P"]]:
        head = model.policy(obs)
        return policy.sample(head, noise), head

    rollout_steps = pytorch.rollout_steps(env, choose, put)

    def appraise(model: ActorCritic, outcome: tuple[Tensor, ...]) -> Transition:
        obs, action, head, reward, terminated, truncated, final_obs, *episode = outcome
        log_prob, value, final_value = policy.log_prob(head, action), model.value(obs), model.value(final_obs)
        return Transition(obs, action, log_prob, value, reward, terminated, truncated, final_value, *episode)

    appraise = put("appraise", appraise)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        action_noise = policy.noise(state.generator, shape, dtype)
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, action_noise))
        # Nothing in a step needs a value: eager torch computes those of all steps in the time of a few.
        return state, appraise(state.model, outcome)

    def policy_objective(model: ActorCritic, minibatch: Minibatch) -> tuple[Float[Tensor, ""], Metrics]:
        return policy_loss(math, policy, model.policy(minibatch.obs), minibatch)

    policy_objective = put("objective", policy_objective)

    def policy_step(model: ActorCritic, adam: AdamState, minibatch: Minibatch, hyper: Hyper) -> Metrics:
        loss, metrics = policy_objective(model, minibatch)
        params = optimised(model, "actor_adam")
        gradient = torch.autograd.grad(loss, params)
        norm = actor_optimiser.update(gradient, adam, params, hyper=hyper)
        change = policy_change(math, policy, model.policy(minibatch.obs), minibatch)
        return {name: x.detach() for name, x in (metrics | change).items()} | {"actor_grad_norm": norm}

    policy_step = put("minibatch_step", policy_step)

    def value_objective(model: ActorCritic, minibatch: Minibatch) -> tuple[Float[Tensor, ""], Metrics]:
        return value_loss(model.value(minibatch.obs), minibatch)

    value_objective = put("objective", value_objective)

    def value_step(model: ActorCritic, adam: AdamState, minibatch: Minibatch, hyper: Hyper) -> Metrics:
        loss, metrics = value_objective(model, minibatch)
        params = optimised(model, "critic_adam")
        gradient = torch.autograd.grad(loss, params)
        norm = critic_optimiser.update(gradient, adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"critic_grad_norm": norm}

    value_step = put("minibatch_step", value_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        policy_metrics = policy_step(state.model, state.actor_adam, minibatch, state.hyper)
        value_metrics = value_step(state.model, state.critic_adam, minibatch, state.hyper)
        return state, policy_metrics | value_metrics

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        with torch.no_grad():
            last_value = state.model.value(state.env.obs)
            data = learnable(math, batch, last_value, state.hyper, config)
        policy_metrics = policy_step(state.model, state.actor_adam, data, state.hyper)
        steps = range(config.num_value_steps)
        history = [value_step(state.model, state.critic_adam, data, state.hyper) for _ in steps]
        mean = {name: torch.stack([x[name] for x in history]).mean() for name in history[0]}
        return state, policy_metrics | mean | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, obs: Shaped[Tensor, "B O"]) -> Shaped[Tensor, "B *A"]:
        return policy.greedy(state.model.policy(obs))

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
