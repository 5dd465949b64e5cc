"""VPG in Haiku: modules inside functions, transformed into pure ones."""

from functools import partial
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, Shaped, UInt32

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.onpolicy import Transition, distribution
from benchback.algorithms.vpg.config import Config, Hyper
from benchback.algorithms.vpg.loss import Minibatch, learnable, policy_change, policy_loss, value_loss
from benchback.backends import xla
from benchback.backends.haiku import LAYOUT, MLP
from benchback.backends.kernel_gradients import fast_gradients
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math


class Network(NamedTuple):
    """Separate towers for policy and value, as pure functions of the parameters."""

    init: Any
    policy: Any
    value: Any


def network(hidden: tuple[int, ...], num_actions: int, dtype: jnp.dtype, initial_log_std: float | None) -> Network:
    def value(obs: Shaped[Array, "B O"]) -> Float[Array, "B"]:
        return MLP(hidden, 1, 1.0, dtype, name="critic")(obs).squeeze(-1)

    def policy(obs: Shaped[Array, "B O"]) -> Float[Array, "B P"]:
        out = MLP(hidden, num_actions, 0.01, dtype, name="actor")(obs)
        if initial_log_std is None:
            return out
        start = hk.initializers.Constant(initial_log_std)
        return math.gaussian.parameters(out, hk.get_parameter("log_std", (num_actions,), dtype, start))

    def forward(obs: Shaped[Array, "B O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        return policy(obs), value(obs)

    whole, *parts = (hk.without_apply_rng(hk.transform(f)) for f in (forward, policy, value))
    return Network(whole.init, *(part.apply for part in parts))


def of_policy(params: hk.Params) -> hk.Params:
    return hk.data_structures.filter(lambda module, *_: not module.startswith("critic"), params)


def of_value(params: hk.Params) -> hk.Params:
    return hk.data_structures.filter(lambda module, *_: module.startswith("critic"), params)


class State(NamedTuple):
    params: hk.Params
    actor_adam: optax.ScaleByAdamState
    critic_adam: optax.ScaleByAdamState
    env: EnvState
    key: Key[Array, ""]
    hyper: Hyper


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    policy = distribution(math, env.actions)
    initial_log_std = None if env.actions.kind == "discrete" else config.initial_log_std
    model = network(config.hidden, env.actions.size, dtype, initial_log_std)
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    @jax.jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        params = model.init(model_key, jnp.zeros((1, env.observation_size)))
        adams = actor_optimiser.init(of_policy(params)), critic_optimiser.init(of_value(params))
        return params, *adams, env.reset(env_key), key

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return xla.transplant(LAYOUT, weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = policy.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))
        return state, appraise(state.params, *seen)

    def rollout_step(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        obs = state.env.obs
        head = model.policy(state.params, obs)
        action = policy.sample(head, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), (obs, action, head, step._replace(obs=None))

    def values(params: Any, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        return model.value(params, obs.reshape(-1, env.observation_size)).reshape(obs.shape[:-1])

    def no_values(params: Any, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:-1], dtype)

    # Nothing in a step needs a value: those of all steps cost less in one go, outside the loop.
    def appraise(
        params: Any,
        obs: Shaped[Array, "T E O"],
        action: Shaped[Array, "T E *A"],
        head: Float[Array, "T E P"],
        step: Step,
    ) -> Transition:
        final_value = jax.lax.cond(step.truncated.any(), values, no_values, params, step.final_obs)
        return Transition(
            obs=obs,
            action=action,
            log_prob=policy.log_prob(head, action),
            value=values(params, obs),
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            final_value=final_value,
            episode_return=step.episode_return,
            episode_length=step.episode_length,
        )

    def policy_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(params: hk.Params) -> tuple[Float[Array, ""], Metrics]:
            head = fast_gradients(partial(model.policy, params))(minibatch.obs)
            return policy_loss(math, policy, head, minibatch)

        gradient, metrics = jax.grad(objective, has_aux=True)(of_policy(state.params))
        step, adam = actor_optimiser.update(gradient, state.actor_adam, hyper=state.hyper)
        moved: Any = optax.apply_updates(of_policy(state.params), step)
        change = policy_change(math, policy, model.policy(moved, minibatch.obs), minibatch)
        state = state._replace(params=hk.data_structures.merge(state.params, moved), actor_adam=adam)
        return state, metrics | change | {"actor_grad_norm": optax.tree.norm(gradient)}

    def value_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(params: hk.Params) -> tuple[Float[Array, ""], Metrics]:
            return value_loss(fast_gradients(partial(model.value, params))(minibatch.obs), minibatch)

        gradient, metrics = jax.grad(objective, has_aux=True)(of_value(state.params))
        step, adam = critic_optimiser.update(gradient, state.critic_adam, hyper=state.hyper)
        moved: Any = optax.apply_updates(of_value(state.params), step)
        state = state._replace(params=hk.data_structures.merge(state.params, moved), critic_adam=adam)
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
        last_value = model.value(state.params, state.env.obs)
        data = learnable(math, batch, last_value, state.hyper, config)
        state, policy_metrics = policy_step(state, data)
        (state, _), history = jax.lax.scan(next_value_step, (state, data), length=config.num_value_steps)
        return state, policy_metrics | jax.tree.map(jnp.mean, history) | episode_metrics(math, batch)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Shaped[Array, "B *A"]:
        return policy.greedy(model.policy(state.params, obs))

    def export(state: State) -> Weights:
        return xla.export(LAYOUT, state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
