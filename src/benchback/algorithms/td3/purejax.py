"""TD3 in plain JAX: parameters are dictionaries, the networks are functions of them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, Shaped, UInt32

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
from benchback.backends import xla
from benchback.backends.kernel_gradients import fast_gradients
from benchback.backends.purejax import LAYOUT, Layers, init_mlp, mlp
from benchback.envs.interface import Env, EnvState
from benchback.math import jax as math

Params = dict[str, Layers]
"""Separate towers: actor, critic1, critic2."""
ACTOR, CRITICS = ("actor",), ("critic1", "critic2")
"""The towers that each optimiser moves."""


def part(params: Params, towers: tuple[str, ...]) -> Params:
    return {name: params[name] for name in towers}


def moved(params: Params, step: Any) -> Any:
    return optax.apply_updates(params, step)


def head(params: Params, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
    return mlp(params["actor"], obs, "relu")


def values(
    params: Params, obs: Shaped[Array, "B O"], action: Float[Array, "B A"]
) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    return value(params, obs, action, "critic1"), value(params, obs, action, "critic2")


def value(
    params: Params, obs: Shaped[Array, "B O"], action: Float[Array, "B A"], tower: str = "critic1"
) -> Float[Array, "B"]:
    return mlp(params[tower], jnp.concatenate([obs, action], -1), "relu").squeeze(-1)


class State(NamedTuple):
    params: Params
    target: Params
    actor_adam: optax.ScaleByAdamState
    critic_adam: optax.ScaleByAdamState
    replay: math.Replay
    env: EnvState
    key: Key[Array, ""]
    hyper: Hyper


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    bounds = action_bounds(math, env, dtype)
    actor_optimiser, critic_optimiser = (
        math.adam(anneal=False, steps_per_iteration=1, num_iterations=1, clip=False, rate=rate)
        for rate in ("actor_learning_rate", "critic_learning_rate")
    )

    @jax.jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        keys = jax.random.split(model_key, 3)
        critic_sizes = (env.observation_size + env.actions.size, *config.hidden, 1)
        params = {
            "actor": init_mlp(keys[0], (env.observation_size, *config.hidden, env.actions.size), 0.01, dtype),
            "critic1": init_mlp(keys[1], critic_sizes, 1.0, dtype),
            "critic2": init_mlp(keys[2], critic_sizes, 1.0, dtype),
        }
        env_state = env.reset(env_key)
        replay = math.empty_replay(example(env_state.obs[0]), config.replay_capacity)
        adams = actor_optimiser.init(part(params, ACTOR)), critic_optimiser.init(part(params, CRITICS))
        return params, jax.tree.map(jnp.copy, params), *adams, replay, env_state, key

    def example(obs: Shaped[Array, "O"]) -> Experience:
        return Experience(obs, jnp.zeros(env.actions.size, dtype), jnp.zeros((), dtype), obs, jnp.zeros((), bool))

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return xla.transplant(LAYOUT, weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def policy(params: Params, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
        return math.squash(head(params, obs), bounds)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        action_noise = math.acting_noise(action_key, shape, state.replay.inserted, config.start_steps, dtype)
        return jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))

    def rollout_step(state: State, noise: tuple[Any, math.ActingNoise]) -> tuple[State, Transition]:
        env_noise, action_noise = noise
        obs = state.env.obs
        action = math.explore(policy(state.params, obs), action_noise, bounds, state.hyper.exploration_noise)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), Transition(obs, action, *step[1:])

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        target = aim(state.target, minibatch, state.hyper)

        def objective(params: Params) -> tuple[Float[Array, ""], Metrics]:
            estimates = fast_gradients(partial(values, params))(minibatch.obs, minibatch.action)
            return critic_loss(estimates, target)

        critics = part(state.params, CRITICS)
        gradient, metrics = jax.grad(objective, has_aux=True)(critics)
        step, critic_adam = critic_optimiser.update(gradient, state.critic_adam, hyper=state.hyper)
        due = jnp.asarray(state.critic_adam.count) % config.policy_delay == 0
        params = state.params | moved(critics, step)
        state = state._replace(params=params, critic_adam=critic_adam)
        state, delayed = jax.lax.cond(due, policy_step, no_policy_step, state, minibatch.obs)
        return state, metrics | {"critic_grad_norm": optax.tree.norm(gradient)} | delayed

    def aim(target: Params, minibatch: Minibatch, hyper: Hyper) -> Float[Array, "B"]:
        action = smoothed(math, policy(target, minibatch.next_obs), minibatch.noise, bounds, hyper)
        return critic_target(math, values(target, minibatch.next_obs, action), minibatch, hyper)

    def policy_step(state: State, obs: Shaped[Array, "B O"]) -> tuple[State, Metrics]:
        def objective(params: Params) -> tuple[Float[Array, ""], Metrics]:
            action = fast_gradients(partial(policy, params))(obs)
            return actor_loss(value(state.params, obs, action))

        actor = part(state.params, ACTOR)
        gradient, metrics = jax.grad(objective, has_aux=True)(actor)
        step, actor_adam = actor_optimiser.update(gradient, state.actor_adam, hyper=state.hyper)
        params = state.params | moved(actor, step)
        target = math.polyak(state.target, params, 1 - state.hyper.polyak)
        state = state._replace(params=params, target=target, actor_adam=actor_adam)
        return state, metrics | {"actor_grad_norm": optax.tree.norm(gradient)}

    def no_policy_step(state: State, obs: Shaped[Array, "B O"]) -> tuple[State, Metrics]:
        return state, unknown(ACTOR_METRICS)

    def unknown(names: tuple[str, ...]) -> Metrics:
        return dict.fromkeys(names, jnp.full((), jnp.nan, dtype))

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        replay = math.insert(state.replay, remembered(batch, config))
        key, row_key, noise_key = jax.random.split(state.key, 3)
        index = math.sample_indices(row_key, replay, (config.gradient_rows,))
        noise = math.gaussian.noise(noise_key, (config.num_updates, config.minibatch_size, env.actions.size), dtype)
        data = minibatches(math.gather(replay, index), noise, config)
        state = state._replace(replay=replay, key=key)
        state, losses = jax.lax.cond(replay.inserted >= config.update_after, gradient_steps, no_steps, state, data)
        return state, losses | episode_metrics(math, batch)

    def gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        state, losses = jax.lax.scan(learn, state, data)
        return state, averaged(math, losses)

    def no_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return state, unknown(METRICS)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
        return policy(state.params, obs)

    def export(state: State) -> Weights:
        return xla.export(LAYOUT, state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
