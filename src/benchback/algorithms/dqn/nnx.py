"""DQN in Flax NNX: the state is one object, mutated in place."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from flax import nnx
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
from benchback.backends.nnx import CNN, NatureCNN, agent
from benchback.backends.nnx_layers import LecunMLP
from benchback.envs.interface import Env
from benchback.math import jax as math
from benchback.plugins import Networks


class QNetwork(nnx.Module):
    """Q-network: the value of each action."""

    tower: ClassVar[Any] = LecunMLP

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        gradients: Gradients,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.critic = self.tower(observation_shape, hidden, num_actions, 1.0, dtype, "relu", gradients, rngs=rngs)

    def __call__(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B A"]:
        return self.critic(obs)


class ConvolutionalQNetwork(QNetwork):
    """Q-network for images of MinAtar."""

    tower = CNN


class NatureQNetwork(QNetwork):
    """Q-network for images of Atari."""

    tower = NatureCNN


NETWORKS = Networks("nnx", "QNetwork", mlp=QNetwork, cnn=ConvolutionalQNetwork, nature_cnn=NatureQNetwork)


@nnx.dataclass(eq=False)
class State(nnx.Pytree):
    """Training state; every field is a module, an optimiser or a variable."""

    model: Network[QNetwork]
    target: Target[QNetwork]
    adam: Optimiser[nnx.Optimizer]
    adam_count: Counter[nnx.Variable]
    replay: Data[nnx.Variable]
    replay_inserted: Counter[nnx.Variable]
    env: Environment[nnx.Variable]
    key: Randomness[nnx.Variable]
    hyper: HyperParameters[nnx.Variable]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.learning_iterations,
        clip=False,
    )

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        rngs = nnx.Rngs(params=model_key)
        sizes = env.observation_shape, config.hidden, env.actions.size
        model = NETWORKS[config.network](*sizes, dtype, gradients, rngs=rngs)
        env_state = env.reset(env_key)
        obs, zero = env_state.obs[0], jnp.zeros((), dtype)
        row = Minibatch(obs, zero.astype(jnp.int32), zero, obs, zero.astype(jnp.bool_))
        return State(
            model=model,
            target=nnx.clone(model),
            adam=nnx.Optimizer(model, optimiser, wrt=nnx.Param),
            adam_count=nnx.Variable(jnp.zeros((), jnp.int32)),
            replay=nnx.Variable(math.empty_replay(row, config.replay_capacity)),
            replay_inserted=nnx.Variable(jnp.zeros((), jnp.int32)),
            env=nnx.Variable(env_state),
            key=nnx.Variable(key),
            hyper=nnx.Variable(hyper),
        )

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        epsilon = epsilon_at(math, state.replay_inserted.get_value(), state.hyper.get_value(), config)
        explored = math.epsilon_noise(action_key, epsilon, (config.num_steps, config.num_envs), env.actions.size)
        return rollout_steps(state, (env_noise, explored))

    # Tree mode (graph=False) suffices without shared references, and costs half when not compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, Int[Array, "E"]]) -> tuple[State, Transition]:
        env_noise, explored = noise
        env_state = state.env.get_value()
        obs = env_state.obs
        action = math.epsilon_greedy(state.model(obs), explored)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, to_transition(obs, action, step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        hyper = state.hyper.get_value()
        next_value = state.target(minibatch.next_obs)

        def objective(model: QNetwork) -> tuple[Float[Array, ""], Metrics]:
            value = model(minibatch.obs)
            selecting_value = model(minibatch.next_obs) if config.double else next_value
            target = td_target(math, next_value, selecting_value, minibatch, hyper)
            return dqn_loss(math, value, target, minibatch)

        gradient, metrics = nnx.grad(objective, has_aux=True)(state.model)
        count = state.adam_count.get_value()
        state.adam.update(state.model, gradient, count=count, hyper=hyper)
        state.adam_count.set_value(count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def minibatch_steps(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        return learn(state, minibatch)

    def gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        state, losses = minibatch_steps(state, data)
        return state, jax.tree.map(jnp.mean, losses)

    def no_gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return state, nan_metrics(jnp.full, LOSS_METRICS, dtype)

    def keep_target(target: Any, online: Any, tau: Float[Array, ""]) -> Any:
        return target

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        inserted, hyper = state.replay_inserted.get_value(), state.hyper.get_value()
        env_state = state.env.get_value()
        epsilon = epsilon_at(math, inserted, hyper, config)
        replay = math.insert(state.replay.get_value(), inserted, to_experience(batch, config))
        inserted += config.batch_size
        key, row_key = jax.random.split(state.key.get_value())
        index = math.sample_indices(row_key, replay, inserted, (config.num_updates, config.minibatch_size))
        state.key.set_value(key)
        state.replay_inserted.set_value(inserted)
        # lax.cond may copy its operands: keep the replay and the environment out of it.
        state.replay.set_value(())
        state.env.set_value(())
        # Not nnx.cond: it wraps its branches anew at each call, so that without jit each call would compile them.
        learner, losses = jax.lax.cond(
            learns(inserted, config), gradient_steps, no_gradient_steps, state, math.gather(replay, index)
        )
        networks = nnx.state(learner.target), nnx.state(learner.model), hyper.tau
        target = jax.lax.cond(updates_target(inserted, config), math.polyak, keep_target, *networks)
        nnx.update(state, nnx.state(learner))
        nnx.update(state.target, target)
        state.replay.set_value(replay)
        state.env.set_value(env_state)
        return state, losses | {"epsilon": epsilon} | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Int[Array, "B"]]:
        return memory, math.categorical.greedy(state.model(obs))

    return agent(State, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
