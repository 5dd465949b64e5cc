"""TD3 in Flax NNX: the state is one object, mutated in place."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Key, Shaped

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
from benchback.algorithms.offpolicy import Experience, Transition, nan_metrics, to_experience, to_transition
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
from benchback.backends import xla
from benchback.backends.kernel_gradients import Gradients
from benchback.backends.nnx import MLP, agent
from benchback.envs.interface import Env
from benchback.math import jax as math

ACTOR = nnx.PathContains("actor")
CRITICS = nnx.Not(ACTOR)
"""The networks that each optimiser updates."""


class ActorCritic(nnx.Module):
    """Separate networks for the actor and two critics."""

    def __init__(
        self,
        inputs: int,
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        gradients: Gradients,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.actor = MLP((inputs,), hidden, num_actions, 0.01, dtype, "relu", gradients, HIDDEN_SCALE, rngs=rngs)
        self.critic1 = MLP((inputs + num_actions,), hidden, 1, 1.0, dtype, "relu", gradients, HIDDEN_SCALE, rngs=rngs)
        self.critic2 = MLP((inputs + num_actions,), hidden, 1, 1.0, dtype, "relu", gradients, HIDDEN_SCALE, rngs=rngs)

    def values(
        self, obs: Shaped[Array, "B *O"], action: Float[Array, "B A"]
    ) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
        inputs = jnp.concatenate([obs.reshape(len(obs), -1), action], -1)
        return self.critic1(inputs).squeeze(-1), self.critic2(inputs).squeeze(-1)

    def value(self, obs: Shaped[Array, "B *O"], action: Float[Array, "B A"]) -> Float[Array, "B"]:
        return self.critic1(jnp.concatenate([obs.reshape(len(obs), -1), action], -1)).squeeze(-1)


class Learner(NamedTuple):
    """The parts of the state that a policy update changes."""

    model: ActorCritic
    target: ActorCritic
    actor_adam: nnx.Optimizer
    actor_adam_count: nnx.Variable


@nnx.dataclass(eq=False)
class State(nnx.Pytree):
    """Training state; every field is a module, an optimiser or a variable."""

    model: Network[ActorCritic]
    target: Target[ActorCritic]
    actor_adam: Optimiser[nnx.Optimizer]
    actor_adam_count: Counter[nnx.Variable]
    critic_adam: Optimiser[nnx.Optimizer]
    critic_adam_count: Counter[nnx.Variable]
    replay: Data[nnx.Variable]
    replay_inserted: Counter[nnx.Variable]
    env: Environment[nnx.Variable]
    key: Randomness[nnx.Variable]
    hyper: HyperParameters[nnx.Variable]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    bounds = action_bounds(math, env, dtype)
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        rngs = nnx.Rngs(params=model_key)
        model = ActorCritic(env.observation_size, config.hidden, env.actions.size, dtype, gradients, rngs=rngs)
        env_state = env.reset(env_key)
        obs, zero = env_state.obs[0], jnp.zeros((), dtype)
        row = Experience(obs, jnp.zeros(env.actions.size, dtype), zero, obs, zero.astype(jnp.bool_))
        return State(
            model=model,
            target=nnx.clone(model),
            actor_adam=nnx.Optimizer(model, actor_optimiser, wrt=ACTOR),
            actor_adam_count=nnx.Variable(jnp.zeros((), jnp.int32)),
            critic_adam=nnx.Optimizer(model, critic_optimiser, wrt=CRITICS),
            critic_adam_count=nnx.Variable(jnp.zeros((), jnp.int32)),
            replay=nnx.Variable(math.empty_replay(row, config.replay_capacity)),
            replay_inserted=nnx.Variable(jnp.zeros((), jnp.int32)),
            env=nnx.Variable(env_state),
            key=nnx.Variable(key),
            hyper=nnx.Variable(hyper),
        )

    def policy(model: ActorCritic, obs: Shaped[Array, "B *O"]) -> Float[Array, "B A"]:
        return math.squash(model.actor(obs), bounds)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        inserted = state.replay_inserted.get_value()
        action_noise = math.acting_noise(action_key, shape, inserted, config.start_steps, dtype)
        return rollout_steps(state, (env_noise, action_noise))

    # Tree mode (graph=False) suffices without shared references, and costs half when not compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, math.ActingNoise]) -> tuple[State, Transition]:
        env_noise, action_noise = noise
        env_state = state.env.get_value()
        obs, scale = env_state.obs, state.hyper.get_value().exploration_noise
        action = math.explore(policy(state.model, obs), action_noise, bounds, scale)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, to_transition(obs, action, step)

    def td_target(target: ActorCritic, minibatch: Minibatch, hyper: Hyper) -> Float[Array, "B"]:
        noise = math.smoothing_noise(minibatch.noise, hyper.target_noise, hyper.target_noise_clip)
        next_action = math.add_noise(policy(target, minibatch.next_obs), noise, bounds)
        next_value1, next_value2 = target.values(minibatch.next_obs, next_action)
        return math.twin_target(minibatch.reward, minibatch.terminated, next_value1, next_value2, hyper.gamma)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        hyper, count = state.hyper.get_value(), state.critic_adam_count.get_value()
        target = td_target(state.target, minibatch, hyper)

        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            return critic_loss(model.values(minibatch.obs, minibatch.action), target)

        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, CRITICS), has_aux=True)(state.model)
        state.critic_adam.update(state.model, gradient, count=count, hyper=hyper)
        state.critic_adam_count.set_value(count + 1)
        # Only the arrays that a policy step changes are operands. Not nnx.cond: it wraps its branches anew at each
        # call, so that without jit each call would compile them.
        learner = Learner(state.model, state.target, state.actor_adam, state.actor_adam_count)
        due = count % config.policy_delay == 0
        learnt, delayed = jax.lax.cond(due, policy_step, no_policy_step, learner, minibatch.obs, hyper)
        nnx.update(learner, nnx.state(learnt))
        return state, metrics | {"critic_grad_norm": optax.tree.norm(gradient)} | delayed

    def policy_step(learner: Learner, obs: Shaped[Array, "B *O"], hyper: Hyper) -> tuple[Learner, Metrics]:
        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            action = policy(model, obs)
            return actor_loss(model.value(obs, action))

        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, ACTOR), has_aux=True)(learner.model)
        count = learner.actor_adam_count.get_value()
        learner.actor_adam.update(learner.model, gradient, count=count, hyper=hyper)
        learner.actor_adam_count.set_value(count + 1)
        nnx.update(learner.target, math.polyak(nnx.state(learner.target), nnx.state(learner.model), 1 - hyper.polyak))
        return learner, metrics | {"actor_grad_norm": optax.tree.norm(gradient)}

    def no_policy_step(learner: Learner, obs: Shaped[Array, "B *O"], hyper: Hyper) -> tuple[Learner, Metrics]:
        return learner, nan_metrics(jnp.full, ACTOR_METRICS, dtype)

    learn_steps = nnx.scan(learn, graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))

    def gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        state, losses = learn_steps(state, data)
        return state, mean_metrics(math, losses)

    def no_gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return state, nan_metrics(jnp.full, METRICS, dtype)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        inserted, env_state = state.replay_inserted.get_value(), state.env.get_value()
        replay = math.insert(state.replay.get_value(), inserted, to_experience(batch, config))
        inserted += config.batch_size
        key, row_key, noise_key = jax.random.split(state.key.get_value(), 3)
        index = math.sample_indices(row_key, replay, inserted, (config.gradient_rows,))
        noise = math.gaussian.noise(noise_key, (config.num_updates, config.minibatch_size, env.actions.size), dtype)
        data = make_minibatches(math.gather(replay, index), noise, config)
        state.key.set_value(key)
        state.replay_inserted.set_value(inserted)
        # lax.cond may copy its operands: keep the replay and the environment out of it.
        state.replay.set_value(())
        state.env.set_value(())
        learns = inserted >= config.update_after
        learner, losses = jax.lax.cond(learns, gradient_steps, no_gradient_steps, state, data)
        nnx.update(state, nnx.state(learner))
        state.replay.set_value(replay)
        state.env.set_value(env_state)
        return state, losses | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Float[Array, "B A"]]:
        return memory, policy(state.model, obs)

    return agent(State, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
