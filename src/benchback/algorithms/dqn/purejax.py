"""DQN in plain JAX: parameters are dictionaries, the network is a function of them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, Shaped, UInt32

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.dqn.loss import LOSS_METRICS, Minibatch, dqn_loss, epsilon, learns, renews_target
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Transition, to_experience
from benchback.backends import xla
from benchback.backends.kernel_gradients import fast_gradients
from benchback.backends.purejax import LAYOUT, Layers, init_mlp, mlp
from benchback.envs.interface import Env, EnvState
from benchback.math import jax as math


class Params(NamedTuple):
    """One tower: the value of each action."""

    critic: Layers


def forward(params: Params, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
    return mlp(params.critic, obs, "relu")


class State(NamedTuple):
    params: Params
    target: Params
    adam: optax.ScaleByAdamState
    replay: math.Replay
    env: EnvState
    key: Key[Array, ""]
    hyper: Hyper


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.learning_iterations,
        clip=False,
    )

    @jax.jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        sizes = (env.observation_size, *config.hidden, env.actions.size)
        params = Params(critic=init_mlp(model_key, sizes, 1.0, dtype))
        env_state = env.reset(env_key)
        obs, zero = env_state.obs[0], jnp.zeros((), dtype)
        row = Minibatch(obs, zero.astype(jnp.int32), zero, obs, zero.astype(jnp.bool_))
        replay = math.empty_replay(row, config.replay_capacity)
        return params, jax.tree.map(jnp.copy, params), optimiser.init(params), replay, env_state, key

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return xla.transplant(LAYOUT, weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        share = epsilon(math, state.replay.inserted, state.hyper, config)
        explored = math.epsilon_noise(action_key, share, (config.num_steps, config.num_envs), env.actions.size)
        return jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, explored))

    def rollout_step(state: State, noise: tuple[Any, Int[Array, "E"]]) -> tuple[State, Transition]:
        env_noise, explored = noise
        obs = state.env.obs
        action = math.epsilon_greedy(forward(state.params, obs), explored)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), Transition(obs, action, *step[1:])

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        next_value = forward(state.target, minibatch.next_obs)

        def objective(params: Params) -> tuple[Float[Array, ""], Metrics]:
            value = fast_gradients(partial(forward, params))(minibatch.obs)
            online = forward(params, minibatch.next_obs) if config.double else None
            return dqn_loss(math, value, next_value, online, minibatch, state.hyper, config)

        gradient, metrics = jax.grad(objective, has_aux=True)(state.params)
        step, adam = optimiser.update(gradient, state.adam, hyper=state.hyper)
        params = optax.apply_updates(state.params, step)
        return state._replace(params=params, adam=adam), metrics | {"grad_norm": optax.tree.norm(gradient)}

    def minibatch_step(state: State, index: Int[Array, "B"]) -> tuple[State, Metrics]:
        return learn(state, math.gather(state.replay, index))

    def train(state: State, index: Int[Array, "U B"]) -> tuple[State, Metrics]:
        state, losses = jax.lax.scan(minibatch_step, state, index)
        return state, jax.tree.map(jnp.mean, losses)

    def wait(state: State, index: Int[Array, "U B"]) -> tuple[State, Metrics]:
        return state, dict.fromkeys(LOSS_METRICS, jnp.full((), jnp.nan, dtype))

    def renew_target(state: State) -> State:
        return state._replace(target=math.polyak(state.target, state.params, state.hyper.tau))

    def keep_target(state: State) -> State:
        return state

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        share = epsilon(math, state.replay.inserted, state.hyper, config)
        replay = math.insert(state.replay, to_experience(batch, config))
        key, row_key = jax.random.split(state.key)
        index = math.sample_indices(row_key, replay, (config.num_updates, config.minibatch_size))
        state = state._replace(replay=replay, key=key)
        state, losses = jax.lax.cond(learns(replay.inserted, config), train, wait, state, index)
        state = jax.lax.cond(renews_target(replay.inserted, config), renew_target, keep_target, state)
        return state, losses | {"epsilon": share} | episode_metrics(math, batch)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Int[Array, "B"]:
        return math.categorical.greedy(forward(state.params, obs))

    def export(state: State) -> Weights:
        return xla.export(LAYOUT, state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
