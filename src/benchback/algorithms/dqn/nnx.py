"""DQN in Flax NNX: one object that holds everything and is mutated in place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Key, Shaped, UInt32

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.dqn.loss import LOSS_METRICS, Minibatch, dqn_loss, epsilon, learns, renews_target
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Transition, to_experience
from benchback.backends import xla
from benchback.backends.kernel_gradients import fast_gradients
from benchback.backends.nnx import MLP, exported, transplant
from benchback.envs.interface import Env, EnvState
from benchback.math import jax as math


class QNetwork(nnx.Module):
    """One tower: the value of each action."""

    def __init__(
        self, observation_size: int, hidden: tuple[int, ...], num_actions: int, dtype: jnp.dtype, *, rngs: nnx.Rngs
    ) -> None:
        self.critic = MLP(observation_size, hidden, num_actions, 1.0, dtype, "relu", rngs=rngs)

    def __call__(self, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
        return self.critic(obs)


class State(nnx.Pytree):
    """All that changes, each part an object or a variable that is assigned to."""

    def __init__(
        self,
        model: QNetwork,
        target: QNetwork,
        adam: nnx.Optimizer,
        replay: math.Replay,
        env: EnvState,
        key: Key[Array, ""],
        hyper: Hyper,
    ) -> None:
        self.model = model
        self.target = target
        self.adam = adam
        self.replay = nnx.Variable(replay)
        self.env = nnx.Variable(env)
        self.key = nnx.Variable(key)
        self.hyper = nnx.Variable(hyper)


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.learning_iterations,
        clip=False,
    )

    @nnx.jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        rngs = nnx.Rngs(params=model_key)
        model = QNetwork(env.observation_size, config.hidden, env.actions.size, dtype, rngs=rngs)
        env_state = env.reset(env_key)
        obs, zero = env_state.obs[0], jnp.zeros((), dtype)
        row = Minibatch(obs, zero.astype(jnp.int32), zero, obs, zero.astype(jnp.bool_))
        replay = math.empty_replay(row, config.replay_capacity)
        adam = nnx.Optimizer(model, optimiser, wrt=nnx.Param)
        return model, nnx.clone(model), adam, replay, env_state, key

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return transplant(weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        share = epsilon(math, state.replay.get_value().inserted, state.hyper.get_value(), config)
        explored = math.epsilon_noise(action_key, share, (config.num_steps, config.num_envs), env.actions.size)
        return rollout_steps(state, (env_noise, explored))

    # Tree mode (graph=False) suffices where nothing is shared, and costs half where nothing is compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, Int[Array, "E"]]) -> tuple[State, Transition]:
        env_noise, explored = noise
        env_state = state.env.get_value()
        obs = env_state.obs
        action = math.epsilon_greedy(state.model(obs), explored)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, Transition(obs, action, *step[1:])

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        hyper = state.hyper.get_value()
        next_value = state.target(minibatch.next_obs)

        def objective(model: QNetwork) -> tuple[Float[Array, ""], Metrics]:
            value = fast_gradients(model)(minibatch.obs)
            online = model(minibatch.next_obs) if config.double else None
            return dqn_loss(math, value, next_value, online, minibatch, hyper, config)

        gradient, metrics = nnx.grad(objective, has_aux=True)(state.model)
        state.adam.update(state.model, gradient, hyper=hyper)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def minibatch_steps(state: State, index: Int[Array, "B"]) -> tuple[State, Metrics]:
        return learn(state, math.gather(state.replay.get_value(), index))

    def train(state: State, index: Int[Array, "U B"]) -> tuple[State, Metrics]:
        state, losses = minibatch_steps(state, index)
        return state, jax.tree.map(jnp.mean, losses)

    def wait(state: State, index: Int[Array, "U B"]) -> tuple[State, Metrics]:
        return state, dict.fromkeys(LOSS_METRICS, jnp.full((), jnp.nan, dtype))

    def renew_target(state: State) -> State:
        tau = state.hyper.get_value().tau
        nnx.update(state.target, math.polyak(nnx.state(state.target), nnx.state(state.model), tau))
        return state

    def keep_target(state: State) -> State:
        return state

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        share = epsilon(math, state.replay.get_value().inserted, state.hyper.get_value(), config)
        replay = math.insert(state.replay.get_value(), to_experience(batch, config))
        key, row_key = jax.random.split(state.key.get_value())
        index = math.sample_indices(row_key, replay, (config.num_updates, config.minibatch_size))
        state.replay.set_value(replay)
        state.key.set_value(key)
        # Not nnx.cond: it wraps its branches anew at every call, and where nothing is compiled each is compiled again.
        following, losses = jax.lax.cond(learns(replay.inserted, config), train, wait, state, index)
        following = jax.lax.cond(renews_target(replay.inserted, config), renew_target, keep_target, following)
        nnx.update(state, nnx.state(following))
        return state, losses | {"epsilon": share} | episode_metrics(math, batch)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Int[Array, "B"]:
        return math.categorical.greedy(state.model(obs))

    def export(state: State) -> Weights:
        return exported(state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
