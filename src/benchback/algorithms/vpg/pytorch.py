"""VPG in PyTorch: module, optimisers and generator are updated in place."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from benchback.agent import Agent, Environment, HyperParameters, Metrics, Network, Optimiser, Randomness
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap
from benchback.algorithms.vpg.config import Config, Hyper
from benchback.algorithms.vpg.loss import Minibatch, make_training_batch, policy_change, policy_loss, value_loss
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import NETWORKS, ActorCritic, Wrap
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math

TOWERS = {"actor_adam": ("actor", "log_std"), "critic_adam": ("critic",)}
"""Optimiser -> the parameters it updates."""


def optimised(model: ActorCritic, adam: str) -> list[Tensor]:
    """The parameters that the optimiser of that name updates."""
    return [p for name, p in model.named_parameters() if name.split(".")[0] in TOWERS[adam]]


@dataclass
class State:
    model: Network[ActorCritic]
    actor_adam: Optimiser[math.AdamState]
    critic_adam: Optimiser[math.AdamState]
    env: Environment[EnvState]
    generator: Randomness[torch.Generator]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, wrap: Wrap = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    distribution = action_distribution(math, env.actions)
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    def init(generator: torch.Generator, hyper: Hyper) -> State:
        hyper = pytorch.as_data(hyper, dtype)
        log_std = None if env.actions.kind == "discrete" else hyper.initial_log_std
        sizes = env.observation_shape, config.hidden, env.actions.size
        model = NETWORKS[config.network](*sizes, dtype, log_std, generator)
        actor_adam = actor_optimiser.init(optimised(model, "actor_adam"))
        critic_adam = critic_optimiser.init(optimised(model, "critic_adam"))
        return State(model, actor_adam, critic_adam, env.reset(generator), generator, hyper)

    def choose(
        model: ActorCritic, obs: Shaped[Tensor, "E *O"], noise: Float[Tensor, "E A"]
    ) -> tuple[Shaped[Tensor, "E *A"], Float[Tensor, "E P"]]:
        policy_params = model.policy(obs)
        return distribution.sample(policy_params, noise), policy_params

    rollout_steps = pytorch.rollout_steps(env, choose, wrap)

    def values(model: ActorCritic, obs: Shaped[Tensor, "T E *O"]) -> Float[Tensor, "T E"]:
        return model.value(obs.flatten(0, 1)).reshape(obs.shape[:2])

    def finish_rollout(model: ActorCritic, outcome: tuple[Tensor, ...]) -> Transition:
        obs, action, policy_params, reward, terminated, truncated, final_obs, *episode = outcome
        log_prob = distribution.log_prob(policy_params, action)
        value, final_value = values(model, obs), values(model, final_obs)
        return Transition(obs, action, log_prob, value, reward, terminated, truncated, final_value, *episode)

    finish_rollout = wrap("finish_rollout", finish_rollout)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        action_noise = distribution.noise(state.generator, shape, dtype)
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, action_noise))
        # Values are not needed to act: eager torch computes them for all steps in the time of a few.
        return state, finish_rollout(state.model, outcome)

    def policy_objective(model: ActorCritic, minibatch: Minibatch) -> tuple[Float[Tensor, ""], Metrics]:
        return policy_loss(math, distribution, model.policy(minibatch.obs), minibatch)

    policy_objective = wrap("objective", policy_objective)

    def policy_step(model: ActorCritic, adam: math.AdamState, minibatch: Minibatch, hyper: Hyper) -> Metrics:
        loss, metrics = policy_objective(model, minibatch)
        params = optimised(model, "actor_adam")
        gradient = torch.autograd.grad(loss, params)
        norm = actor_optimiser.update(gradient, adam, params, hyper=hyper)
        change = policy_change(math, distribution, model.policy(minibatch.obs), minibatch)
        return {name: x.detach() for name, x in (metrics | change).items()} | {"actor_grad_norm": norm}

    policy_step = wrap("minibatch_step", policy_step)

    def value_objective(model: ActorCritic, minibatch: Minibatch) -> tuple[Float[Tensor, ""], Metrics]:
        return value_loss(model.value(minibatch.obs), minibatch)

    value_objective = wrap("objective", value_objective)

    def value_step(model: ActorCritic, adam: math.AdamState, minibatch: Minibatch, hyper: Hyper) -> Metrics:
        loss, metrics = value_objective(model, minibatch)
        params = optimised(model, "critic_adam")
        gradient = torch.autograd.grad(loss, params)
        norm = critic_optimiser.update(gradient, adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"critic_grad_norm": norm}

    value_step = wrap("minibatch_step", value_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        policy_metrics = policy_step(state.model, state.actor_adam, minibatch, state.hyper)
        value_metrics = value_step(state.model, state.critic_adam, minibatch, state.hyper)
        return state, policy_metrics | value_metrics

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        model, hyper = state.model, state.hyper
        with torch.no_grad():
            next_value, terminated = bootstrap(math, batch, model.value(state.env.obs), config.truncation)
            advantage = math.gae(
                batch.reward, batch.value, next_value, terminated, batch.done, gamma=hyper.gamma, lam=hyper.gae_lambda
            )
            target = math.rewards_to_go(batch.reward, next_value, terminated, batch.done, gamma=hyper.gamma)
            data = make_training_batch(batch, advantage, target)
        policy_metrics = policy_step(model, state.actor_adam, data, hyper)
        losses = [value_step(model, state.critic_adam, data, hyper) for _ in range(config.num_value_steps)]
        mean = {name: torch.stack([x[name] for x in losses]).mean() for name in losses[0]}
        return state, policy_metrics | mean | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, memory: tuple[()], obs: Shaped[Tensor, "B *O"]) -> tuple[tuple[()], Shaped[Tensor, "B *A"]]:
        return memory, distribution.greedy(state.model.policy(obs))

    return torch_state.agent(
        State,
        config,
        env,
        make=make,
        towers=TOWERS,
        init=init,
        rollout=rollout,
        update=update,
        learn=learn,
        act=act,
    )
