"""PPO in Flax Linen: pure functions over a tuple of pytrees."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, Shaped

from benchback.agent import Agent, Counter, Data, Environment, HyperParameters, Metrics, Network, Optimiser, Randomness
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import (
    Normaliser,
    init_normaliser,
    normalise_batch,
    normalise_obs,
    update_normaliser,
)
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap, to_transitions
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import Minibatch, make_training_batch, ppo_loss
from benchback.backends import xla
from benchback.backends.kernel_gradients import Gradients
from benchback.backends.linen import LAYOUT, NETWORKS, with_log_std
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math


class State(NamedTuple):
    params: Network[Any]
    adam: Optimiser[math.AdamState]
    adam_count: Counter[Int[Array, ""]]
    normaliser: Data[Normaliser | tuple[()]]
    env: Environment[EnvState]
    key: Randomness[Key[Array, ""]]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    distribution = action_distribution(math, env.actions)
    model = NETWORKS[config.network](config.hidden, env.actions.size, dtype, env.actions.kind == "box", gradients)
    optimiser = math.adam(
        anneal=config.anneal, steps_per_iteration=config.updates_per_iteration, num_iterations=config.num_iterations
    )

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        params = model.init(model_key, jnp.zeros((1, *env.observation_shape)))["params"]
        params = with_log_std(params, hyper.initial_log_std)
        normaliser = init_normaliser(math, config, env.observation_shape, dtype)
        count = jnp.zeros((), jnp.int32)
        return State(params, optimiser.init(params), count, normaliser, env.reset(env_key), key, hyper)

    def apply(params: Any, obs: Shaped[Array, "B *O"], method: str | None = None) -> Any:
        return model.apply({"params": params}, obs, method=method)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = distribution.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))
        return state, finish_rollout(state, *seen)

    def rollout_step(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        obs = state.env.obs
        policy_params = apply(state.params, normalise_obs(math, state.normaliser, obs), "policy")
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), (obs, action, policy_params, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(state: State, obs: Any, action: Any, policy_params: Any, step: Step) -> Transition:
        log_prob = distribution.log_prob(policy_params, action)
        networks = state.params, state.normaliser
        final_value = jax.lax.cond(any_member(step.truncated.any()), values, no_values, *networks, step.final_obs)
        return to_transitions(obs, action, log_prob, values(*networks, obs), final_value, step)

    def values(params: Any, normaliser: Any, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        rows = normalise_obs(math, normaliser, obs).reshape(-1, *env.observation_shape)
        return apply(params, rows, "value").reshape(obs.shape[:2])

    def no_values(params: Any, normaliser: Any, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:2], dtype)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(params: Any) -> tuple[Float[Array, ""], Metrics]:
            policy_params, value = apply(params, minibatch.obs)
            return ppo_loss(math, distribution, policy_params, value, minibatch, state.hyper, config)

        gradient, metrics = jax.grad(objective, has_aux=True)(state.params)
        step, adam = optimiser.update(gradient, state.adam, count=state.adam_count, hyper=state.hyper)
        params = optax.apply_updates(state.params, step)
        state = state._replace(params=params, adam=adam, adam_count=state.adam_count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    def minibatch_step(
        carry: tuple[State, Minibatch], index: Int[Array, "B"]
    ) -> tuple[tuple[State, Minibatch], Metrics]:
        state, data = carry
        state, metrics = learn(state, math.take(data, index))
        return (state, data), metrics

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser, state.hyper
        last_value = apply(state.params, normalise_obs(math, normaliser, state.env.obs), "value")
        seen = normalise_batch(math, normaliser, batch)
        next_value, terminated = bootstrap(math, seen, last_value, config.truncation)
        advantage = math.gae(
            seen.reward, seen.value, next_value, terminated, seen.done, gamma=hyper.gamma, lam=hyper.gae_lambda
        )
        key, shuffle_key = jax.random.split(state.key)
        index = math.minibatch_indices(
            shuffle_key,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        carry = state._replace(key=key), make_training_batch(seen, advantage)
        (state, _), losses = jax.lax.scan(minibatch_step, carry, index)
        state = state._replace(normaliser=update_normaliser(math, normaliser, batch, hyper.gamma))
        return state, jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Shaped[Array, "B *A"]]:
        return memory, distribution.greedy(apply(state.params, normalise_obs(math, state.normaliser, obs), "policy"))

    return xla.agent(State, LAYOUT, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
