"""DQN in Equinox: the model is a pytree, called on one sample and vmapped over the batch."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, Shaped

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
from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.dqn.loss import (
    LOSS_METRICS,
    Minibatch,
    dqn_loss,
    epsilon_at,
    learns,
    td_target,
    updates_target,
)
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Transition, nan_metrics, to_experience, to_transition
from benchback.backends import xla
from benchback.backends.equinox import CNN, LAYOUT, LecunMLP, NatureCNN
from benchback.backends.kernel_gradients import Gradients
from benchback.envs.interface import Env, EnvState
from benchback.math import jax as math
from benchback.plugins import Networks


class QNetwork(eqx.Module):
    """Q-network: the value of each action; called on one sample."""

    critic: Any
    tower: ClassVar[Any] = LecunMLP

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        key: Key[Array, ""],
        gradients: Gradients,
    ):
        self.critic = self.tower(observation_shape, hidden, num_actions, 1.0, dtype, key, "relu", gradients)

    def __call__(self, obs: Shaped[Array, "*O"]) -> Float[Array, "A"]:
        return self.critic(obs)


class ConvolutionalQNetwork(QNetwork):
    """Q-network for images of MinAtar."""

    tower = CNN


class NatureQNetwork(QNetwork):
    """Q-network for images of Atari."""

    tower = NatureCNN


NETWORKS = Networks("equinox", "QNetwork", mlp=QNetwork, cnn=ConvolutionalQNetwork, nature_cnn=NatureQNetwork)


class State(NamedTuple):
    model: Network[QNetwork]
    target: Target[QNetwork]
    adam: Optimiser[math.AdamState]
    adam_count: Counter[Int[Array, ""]]
    replay: Data[math.Replay]
    replay_inserted: Counter[Int[Array, ""]]
    env: Environment[EnvState]
    key: Randomness[Key[Array, ""]]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    sizes = env.observation_shape, config.hidden, env.actions.size
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.learning_iterations,
        clip=False,
    )

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        model = NETWORKS[config.network](*sizes, dtype, model_key, gradients)
        adam = optimiser.init(eqx.filter(model, eqx.is_array))
        target = jax.tree.map(jnp.copy, model)
        env_state = env.reset(env_key)
        obs, zero = env_state.obs[0], jnp.zeros((), dtype)
        row = Minibatch(obs, zero.astype(jnp.int32), zero, obs, zero.astype(jnp.bool_))
        replay = math.empty_replay(row, config.replay_capacity)
        adam_count, inserted = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return State(model, target, adam, adam_count, replay, inserted, env_state, key, hyper)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        epsilon = epsilon_at(math, state.replay_inserted, state.hyper, config)
        explored = math.epsilon_noise(action_key, epsilon, (config.num_steps, config.num_envs), env.actions.size)
        return jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, explored))

    def rollout_step(state: State, noise: tuple[Any, Int[Array, "E"]]) -> tuple[State, Transition]:
        env_noise, explored = noise
        obs = state.env.obs
        action = math.epsilon_greedy(jax.vmap(state.model)(obs), explored)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), to_transition(obs, action, step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        next_value = jax.vmap(state.target)(minibatch.next_obs)

        def objective(model: QNetwork) -> tuple[Float[Array, ""], Metrics]:
            value = jax.vmap(model)(minibatch.obs)
            selecting_value = jax.vmap(model)(minibatch.next_obs) if config.double else next_value
            target = td_target(math, next_value, selecting_value, minibatch, state.hyper)
            return dqn_loss(math, value, target, minibatch)

        gradient, metrics = eqx.filter_grad(objective, has_aux=True)(state.model)
        step, adam = optimiser.update(gradient, state.adam, count=state.adam_count, hyper=state.hyper)
        model = eqx.apply_updates(state.model, step)
        state = state._replace(model=model, adam=adam, adam_count=state.adam_count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    def gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        state, losses = jax.lax.scan(learn, state, data)
        return state, jax.tree.map(jnp.mean, losses)

    def no_gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return state, nan_metrics(jnp.full, LOSS_METRICS, dtype)

    def keep_target(target: QNetwork, online: QNetwork, tau: Float[Array, ""]) -> QNetwork:
        return target

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        epsilon = epsilon_at(math, state.replay_inserted, state.hyper, config)
        replay = math.insert(state.replay, state.replay_inserted, to_experience(batch, config))
        inserted = state.replay_inserted + config.batch_size
        key, row_key = jax.random.split(state.key)
        index = math.sample_indices(row_key, replay, inserted, (config.num_updates, config.minibatch_size))
        # lax.cond may copy its operands: keep the replay and the environment out of it.
        learner = state._replace(replay=None, replay_inserted=inserted, env=None, key=key)
        learner, losses = jax.lax.cond(
            learns(inserted, config), gradient_steps, no_gradient_steps, learner, math.gather(replay, index)
        )
        networks = learner.target, learner.model, learner.hyper.tau
        target = jax.lax.cond(updates_target(inserted, config), math.polyak, keep_target, *networks)
        state = learner._replace(target=target, replay=replay, env=state.env)
        return state, losses | {"epsilon": epsilon} | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Int[Array, "B"]]:
        return memory, math.categorical.greedy(jax.vmap(state.model)(obs))

    return xla.agent(State, LAYOUT, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
