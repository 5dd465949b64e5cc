"""PPO in PyTorch: module, optimiser and generator are updated in place."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from benchback.agent import Agent, Data, Environment, HyperParameters, Metrics, Network, Optimiser, Randomness
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import (
    Normaliser,
    init_normaliser,
    normalise_batch,
    normalise_obs,
    update_normaliser,
)
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import Minibatch, make_training_batch, ppo_loss
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import NETWORKS, ActorCritic, Wrap
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math


@dataclass
class State:
    model: Network[ActorCritic]
    adam: Optimiser[math.AdamState]
    normaliser: Data[Normaliser | tuple[()]]
    env: Environment[EnvState]
    generator: Randomness[torch.Generator]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, wrap: Wrap = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    distribution = action_distribution(math, env.actions)
    optimiser = math.adam(
        anneal=config.anneal, steps_per_iteration=config.updates_per_iteration, num_iterations=config.num_iterations
    )

    def init(generator: torch.Generator, hyper: Hyper) -> State:
        hyper = pytorch.as_data(hyper, dtype)
        log_std = None if env.actions.kind == "discrete" else hyper.initial_log_std
        sizes = env.observation_shape, config.hidden, env.actions.size
        model = NETWORKS[config.network](*sizes, dtype, log_std, generator)
        adam = optimiser.init(list(model.parameters()))
        with generator.device:
            normaliser = init_normaliser(math, config, env.observation_shape, dtype)
        return State(model, adam, normaliser, env.reset(generator), generator, hyper)

    def policy_step(
        model: ActorCritic, obs: Shaped[Tensor, "E *O"], noise: Float[Tensor, "E A"], normaliser: Any
    ) -> tuple[Shaped[Tensor, "E *A"], Float[Tensor, "E P"]]:
        policy_params = model.policy(normalise_obs(math, normaliser, obs))
        return distribution.sample(policy_params, noise), policy_params

    rollout_steps = pytorch.rollout_steps(env, policy_step, wrap)

    def values(model: ActorCritic, normaliser: Any, obs: Shaped[Tensor, "T E *O"]) -> Float[Tensor, "T E"]:
        rows = normalise_obs(math, normaliser, obs).flatten(0, 1)
        return model.value(rows).reshape(obs.shape[:2])

    def finish_rollout(model: ActorCritic, outcome: tuple[Tensor, ...], normaliser: Any) -> Transition:
        obs, action, policy_params, reward, terminated, truncated, final_obs, *episode = outcome
        log_prob = distribution.log_prob(policy_params, action)
        value, final_value = (values(model, normaliser, x) for x in (obs, final_obs))
        return Transition(obs, action, log_prob, value, reward, terminated, truncated, final_value, *episode)

    finish_rollout = wrap("finish_rollout", finish_rollout)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        action_noise = distribution.noise(state.generator, shape, dtype)
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, action_noise), state.normaliser)
        # Values are not needed to act: eager torch computes them for all steps in the time of a few.
        return state, finish_rollout(state.model, outcome, state.normaliser)

    def objective(model: ActorCritic, minibatch: Minibatch, hyper: Hyper) -> tuple[Float[Tensor, ""], Metrics]:
        policy_params, value = model(minibatch.obs)
        return ppo_loss(math, distribution, policy_params, value, minibatch, hyper, config)

    objective = wrap("objective", objective)

    def minibatch_step(model: ActorCritic, adam: math.AdamState, minibatch: Minibatch, hyper: Hyper) -> Metrics:
        loss, metrics = objective(model, minibatch, hyper)
        params = list(model.parameters())
        gradient = torch.autograd.grad(loss, params)
        norm = optimiser.update(gradient, adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"grad_norm": norm}

    minibatch_step = wrap("minibatch_step", minibatch_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        return state, minibatch_step(state.model, state.adam, minibatch, state.hyper)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser, state.hyper
        with torch.no_grad():
            last_value = state.model.value(normalise_obs(math, normaliser, state.env.obs))
            seen = normalise_batch(math, normaliser, batch)
            next_value, terminated = bootstrap(math, seen, last_value, config.truncation)
            advantage = math.gae(
                seen.reward, seen.value, next_value, terminated, seen.done, gamma=hyper.gamma, lam=hyper.gae_lambda
            )
            data = make_training_batch(seen, advantage)
        index = math.minibatch_indices(
            state.generator,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        losses = [learn(state, math.take(data, row))[1] for row in index]
        state.normaliser = update_normaliser(math, normaliser, batch, hyper.gamma)
        mean = {name: torch.stack([x[name] for x in losses]).mean() for name in losses[0]}
        return state, mean | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, memory: tuple[()], obs: Shaped[Tensor, "B *O"]) -> tuple[tuple[()], Shaped[Tensor, "B *A"]]:
        return memory, distribution.greedy(state.model.policy(normalise_obs(math, state.normaliser, obs)))

    return torch_state.agent(
        State, config, env, make=make, init=init, rollout=rollout, update=update, learn=learn, act=act
    )
