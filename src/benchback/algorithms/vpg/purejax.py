"""VPG in plain JAX: parameters are lists of dictionaries, a layer is two lines."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, Shaped

from benchback.agent import Agent, Counter, Environment, HyperParameters, Metrics, Network, Optimiser, Randomness
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap, to_transitions
from benchback.algorithms.vpg.config import Config, Hyper
from benchback.algorithms.vpg.loss import Minibatch, make_training_batch, policy_change, policy_loss, value_loss
from benchback.backends import xla
from benchback.backends.kernel_gradients import Gradients
from benchback.backends.purejax import LAYOUT, NETWORKS, ActorCritic
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math
from benchback.math.jax.sharding import split_rows


def actor_of(params: ActorCritic) -> ActorCritic:
    """Parameters of the actor."""
    return params._replace(critic=None)


def critic_of(params: ActorCritic) -> ActorCritic:
    """Parameters of the critic."""
    return params._replace(actor=None, log_std=None)


class State(NamedTuple):
    params: Network[ActorCritic]
    actor_adam: Optimiser[math.AdamState]
    actor_adam_count: Counter[Int[Array, ""]]
    critic_adam: Optimiser[math.AdamState]
    critic_adam_count: Counter[Int[Array, ""]]
    env: Environment[EnvState]
    key: Randomness[Key[Array, ""]]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    distribution = action_distribution(math, env.actions)
    network = NETWORKS[config.network]
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        log_std = None if env.actions.kind == "discrete" else hyper.initial_log_std
        sizes = env.observation_shape, config.hidden, env.actions.size
        params = network.init(model_key, *sizes, dtype, log_std)
        actor_adam, critic_adam = actor_optimiser.init(actor_of(params)), critic_optimiser.init(critic_of(params))
        count = jnp.zeros((), jnp.int32)
        return State(params, actor_adam, count, critic_adam, count, env.reset(env_key), key, hyper)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = distribution.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))
        return state, finish_rollout(state.params, *seen)

    def rollout_step(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        obs = state.env.obs
        policy_params = network.actor(state.params, obs)
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), (obs, action, policy_params, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(params: ActorCritic, obs: Any, action: Any, policy_params: Any, step: Step) -> Transition:
        log_prob = distribution.log_prob(policy_params, action)
        final_value = jax.lax.cond(any_member(step.truncated.any()), values, no_values, params, step.final_obs)
        return to_transitions(obs, action, log_prob, values(params, obs), final_value, step)

    def values(params: ActorCritic, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        rows = obs.reshape(-1, *env.observation_shape)
        return network.critic(params, rows).reshape(obs.shape[:2])

    def no_values(params: ActorCritic, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:2], dtype)

    def policy_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(actor: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            policy_params = network.actor(actor, minibatch.obs, gradients)
            return policy_loss(math, distribution, policy_params, minibatch)

        actor: Any = actor_of(state.params)
        gradient, metrics = jax.grad(objective, has_aux=True)(actor)
        count = state.actor_adam_count
        step, adam = actor_optimiser.update(gradient, state.actor_adam, count=count, hyper=state.hyper)
        actor = optax.apply_updates(actor, step)
        change = policy_change(math, distribution, network.actor(actor, minibatch.obs), minibatch)
        params = state.params._replace(actor=actor.actor, log_std=actor.log_std)
        state = state._replace(params=params, actor_adam=adam, actor_adam_count=count + 1)
        return state, metrics | change | {"actor_grad_norm": optax.tree.norm(gradient)}

    def value_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(critic: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            return value_loss(network.critic(critic, minibatch.obs, gradients), minibatch)

        critic: Any = critic_of(state.params)
        gradient, metrics = jax.grad(objective, has_aux=True)(critic)
        count = state.critic_adam_count
        step, adam = critic_optimiser.update(gradient, state.critic_adam, count=count, hyper=state.hyper)
        critic = optax.apply_updates(critic, step)
        params = state.params._replace(critic=critic.critic)
        state = state._replace(params=params, critic_adam=adam, critic_adam_count=count + 1)
        return state, metrics | {"critic_grad_norm": optax.tree.norm(gradient)}

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        state, policy_metrics = policy_step(state, minibatch)
        state, value_metrics = value_step(state, minibatch)
        return state, policy_metrics | value_metrics

    def next_value_step(carry: tuple[State, Minibatch], _: None) -> tuple[tuple[State, Minibatch], Metrics]:
        state, data = carry
        state, metrics = value_step(state, data)
        return (state, data), metrics

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        hyper, last_value = state.hyper, network.critic(state.params, state.env.obs)
        next_value, terminated = bootstrap(math, batch, last_value, config.truncation)
        advantage = math.gae(
            batch.reward, batch.value, next_value, terminated, batch.done, gamma=hyper.gamma, lam=hyper.gae_lambda
        )
        target = math.rewards_to_go(batch.reward, next_value, terminated, batch.done, gamma=hyper.gamma)
        data = split_rows(make_training_batch(batch, advantage, target))
        state, policy_metrics = policy_step(state, data)
        (state, _), losses = jax.lax.scan(next_value_step, (state, data), length=config.num_value_steps)
        return state, policy_metrics | jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Shaped[Array, "B *A"]]:
        return memory, distribution.greedy(network.actor(state.params, obs))

    return xla.agent(State, LAYOUT, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
