"""DQN in Flax Linen: pure functions over a tuple of pytrees."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
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
from benchback.backends.kernel_gradients import Gradients
from benchback.backends.linen import CNN, LAYOUT, LecunMLP, NatureCNN
from benchback.envs.interface import Env, EnvState
from benchback.math import jax as math
from benchback.plugins import Networks


class QNetwork(nn.Module):
    """Q-network: the value of each action."""

    hidden: tuple[int, ...]
    num_actions: int
    dtype: jnp.dtype
    gradients: Gradients
    tower: ClassVar[Any] = LecunMLP

    def setup(self) -> None:
        self.critic = self.tower(self.hidden, self.num_actions, 1.0, self.dtype, "relu", self.gradients)

    def __call__(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B A"]:
        return self.critic(obs)


class ConvolutionalQNetwork(QNetwork):
    """Q-network for images of MinAtar."""

    tower = CNN


class NatureQNetwork(QNetwork):
    """Q-network for images of Atari."""

    tower = NatureCNN


NETWORKS = Networks("linen", "QNetwork", mlp=QNetwork, cnn=ConvolutionalQNetwork, nature_cnn=NatureQNetwork)


class State(NamedTuple):
    params: Network[Any]
    target: Target[Any]
    adam: Optimiser[math.AdamState]
    adam_count: Counter[Int[Array, ""]]
    replay: Data[math.Replay]
    replay_inserted: Counter[Int[Array, ""]]
    env: Environment[EnvState]
    key: Randomness[Key[Array, ""]]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    model = NETWORKS[config.network](config.hidden, env.actions.size, dtype, gradients)
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.learning_iterations,
        clip=False,
    )

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        params = model.init(model_key, jnp.zeros((1, *env.observation_shape)))["params"]
        target = jax.tree.map(jnp.copy, params)
        env_state = env.reset(env_key)
        obs, zero = env_state.obs[0], jnp.zeros((), dtype)
        row = Minibatch(obs, zero.astype(jnp.int32), zero, obs, zero.astype(jnp.bool_))
        replay = math.empty_replay(row, config.replay_capacity)
        adam_count, inserted = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32)
        return State(params, target, optimiser.init(params), adam_count, replay, inserted, env_state, key, hyper)

    def q_values(params: Any, obs: Shaped[Array, "B *O"]) -> Any:
        return model.apply({"params": params}, obs)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        epsilon = epsilon_at(math, state.replay_inserted, state.hyper, config)
        explored = math.epsilon_noise(action_key, epsilon, (config.num_steps, config.num_envs), env.actions.size)
        return jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, explored))

    def rollout_step(state: State, noise: tuple[Any, Int[Array, "E"]]) -> tuple[State, Transition]:
        env_noise, explored = noise
        obs = state.env.obs
        action = math.epsilon_greedy(q_values(state.params, obs), explored)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), to_transition(obs, action, step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        next_value = q_values(state.target, minibatch.next_obs)

        def objective(params: Any) -> tuple[Float[Array, ""], Metrics]:
            value = q_values(params, minibatch.obs)
            selecting_value = q_values(params, minibatch.next_obs) if config.double else next_value
            target = td_target(math, next_value, selecting_value, minibatch, state.hyper)
            return dqn_loss(math, value, target, minibatch)

        gradient, metrics = jax.grad(objective, has_aux=True)(state.params)
        step, adam = optimiser.update(gradient, state.adam, count=state.adam_count, hyper=state.hyper)
        params = optax.apply_updates(state.params, step)
        state = state._replace(params=params, adam=adam, adam_count=state.adam_count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    def gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        state, losses = jax.lax.scan(learn, state, data)
        return state, jax.tree.map(jnp.mean, losses)

    def no_gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return state, nan_metrics(jnp.full, LOSS_METRICS, dtype)

    def keep_target(target: Any, online: Any, tau: Float[Array, ""]) -> Any:
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
        networks = learner.target, learner.params, learner.hyper.tau
        target = jax.lax.cond(updates_target(inserted, config), math.polyak, keep_target, *networks)
        state = learner._replace(target=target, replay=replay, env=state.env)
        return state, losses | {"epsilon": epsilon} | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Int[Array, "B"]]:
        return memory, math.categorical.greedy(q_values(state.params, obs))

    return xla.agent(State, LAYOUT, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
