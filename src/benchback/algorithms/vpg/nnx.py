"""VPG in Flax NNX: the state is one object, mutated in place."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Key, Shaped

from benchback.agent import Agent, Counter, Environment, HyperParameters, Metrics, Network, Optimiser, Randomness
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap, to_transitions
from benchback.algorithms.vpg.config import Config, Hyper
from benchback.algorithms.vpg.loss import Minibatch, make_training_batch, policy_change, policy_loss, value_loss
from benchback.backends import xla
from benchback.backends.kernel_gradients import Gradients
from benchback.backends.nnx import NETWORKS, ActorCritic, agent
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, Step
from benchback.math import jax as math
from benchback.math.jax.sharding import split_rows

ACTOR = nnx.All(nnx.Param, nnx.Not(nnx.PathContains("critic")))
CRITIC = nnx.All(nnx.Param, nnx.PathContains("critic"))


@nnx.dataclass(eq=False)
class State(nnx.Pytree):
    """Training state; every field is a module, an optimiser or a variable."""

    model: Network[ActorCritic]
    actor_adam: Optimiser[nnx.Optimizer]
    actor_adam_count: Counter[nnx.Variable]
    critic_adam: Optimiser[nnx.Optimizer]
    critic_adam_count: Counter[nnx.Variable]
    env: Environment[nnx.Variable]
    key: Randomness[nnx.Variable]
    hyper: HyperParameters[nnx.Variable]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    distribution = action_distribution(math, env.actions)
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        log_std = None if env.actions.kind == "discrete" else hyper.initial_log_std
        sizes = env.observation_shape, config.hidden, env.actions.size
        rngs = nnx.Rngs(params=model_key)
        model = NETWORKS[config.network](*sizes, dtype, log_std, gradients, rngs=rngs)
        return State(
            model=model,
            actor_adam=nnx.Optimizer(model, actor_optimiser, wrt=ACTOR),
            actor_adam_count=nnx.Variable(jnp.zeros((), jnp.int32)),
            critic_adam=nnx.Optimizer(model, critic_optimiser, wrt=CRITIC),
            critic_adam_count=nnx.Variable(jnp.zeros((), jnp.int32)),
            env=nnx.Variable(env.reset(env_key)),
            key=nnx.Variable(key),
            hyper=nnx.Variable(hyper),
        )

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = distribution.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = rollout_steps(state, (env_noise, action_noise))
        return state, finish_rollout(state.model, *seen)

    # Tree mode (graph=False) suffices without shared references, and costs half when not compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        env_state = state.env.get_value()
        obs = env_state.obs
        policy_params = state.model.policy(obs)
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, (obs, action, policy_params, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(model: ActorCritic, obs: Any, action: Any, policy_params: Any, step: Step) -> Transition:
        log_prob = distribution.log_prob(policy_params, action)
        final_value = jax.lax.cond(any_member(step.truncated.any()), values, no_values, model, step.final_obs)
        return to_transitions(obs, action, log_prob, values(model, obs), final_value, step)

    def values(model: ActorCritic, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        rows = obs.reshape(-1, *env.observation_shape)
        return model.value(rows).reshape(obs.shape[:2])

    def no_values(model: ActorCritic, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:2], dtype)

    def policy_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            policy_params = model.policy(minibatch.obs)
            return policy_loss(math, distribution, policy_params, minibatch)

        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, ACTOR), has_aux=True)(state.model)
        count = state.actor_adam_count.get_value()
        state.actor_adam.update(state.model, gradient, count=count, hyper=state.hyper.get_value())
        state.actor_adam_count.set_value(count + 1)
        change = policy_change(math, distribution, state.model.policy(minibatch.obs), minibatch)
        return state, metrics | change | {"actor_grad_norm": optax.tree.norm(gradient)}

    def value_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            return value_loss(model.value(minibatch.obs), minibatch)

        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, CRITIC), has_aux=True)(state.model)
        count = state.critic_adam_count.get_value()
        state.critic_adam.update(state.model, gradient, count=count, hyper=state.hyper.get_value())
        state.critic_adam_count.set_value(count + 1)
        return state, metrics | {"critic_grad_norm": optax.tree.norm(gradient)}

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        state, policy_metrics = policy_step(state, minibatch)
        state, value_metrics = value_step(state, minibatch)
        return state, policy_metrics | value_metrics

    @nnx.scan(graph=False, length=config.num_value_steps, in_axes=(nnx.Carry, None), out_axes=(nnx.Carry, 0))
    def value_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return value_step(state, data)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        hyper, last_value = state.hyper.get_value(), state.model.value(state.env.get_value().obs)
        next_value, terminated = bootstrap(math, batch, last_value, config.truncation)
        advantage = math.gae(
            batch.reward, batch.value, next_value, terminated, batch.done, gamma=hyper.gamma, lam=hyper.gae_lambda
        )
        target = math.rewards_to_go(batch.reward, next_value, terminated, batch.done, gamma=hyper.gamma)
        data = split_rows(make_training_batch(batch, advantage, target))
        state, policy_metrics = policy_step(state, data)
        state, losses = value_steps(state, data)
        return state, policy_metrics | jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Shaped[Array, "B *A"]]:
        return memory, distribution.greedy(state.model.policy(obs))

    return agent(State, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
