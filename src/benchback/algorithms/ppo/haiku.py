"""PPO in Haiku: modules inside functions, transformed into pure ones."""

from functools import partial
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, Shaped, UInt32

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import Normaliser, absorbed, fresh_normaliser, visible, visible_batch
from benchback.algorithms.onpolicy import Transition, distribution
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import Minibatch, learnable, ppo_loss
from benchback.backends import xla
from benchback.backends.haiku import LAYOUT, MLP
from benchback.backends.kernel_gradients import fast_gradients
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math


class Network(NamedTuple):
    """Separate towers for policy and value, as pure functions of the parameters."""

    init: Any
    apply: Any
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
    return Network(whole.init, whole.apply, *(part.apply for part in parts))


class State(NamedTuple):
    params: hk.Params
    adam: optax.ScaleByAdamState
    normaliser: Normaliser | tuple[()]
    env: EnvState
    key: Key[Array, ""]
    hyper: Hyper


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    policy = distribution(math, env.actions)
    initial_log_std = None if env.actions.kind == "discrete" else config.initial_log_std
    model = network(config.hidden, env.actions.size, dtype, initial_log_std)
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.num_iterations,
    )

    @jax.jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        params = model.init(model_key, jnp.zeros((1, env.observation_size)))
        normaliser = fresh_normaliser(math, config, env.observation_size, dtype)
        return params, optimiser.init(params), normaliser, env.reset(env_key), key

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return xla.transplant(LAYOUT, weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = policy.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))
        return state, appraise(state.params, state.normaliser, *seen)

    def rollout_step(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        obs = state.env.obs
        head = model.policy(state.params, visible(math, state.normaliser, obs))
        action = policy.sample(head, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), (obs, action, head, step._replace(obs=None))

    def values(params: Any, normaliser: Any, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        rows = visible(math, normaliser, obs).reshape(-1, env.observation_size)
        return model.value(params, rows).reshape(obs.shape[:-1])

    def no_values(params: Any, normaliser: Any, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:-1], dtype)

    # Nothing in a step needs a value: those of all steps cost less in one go, outside the loop.
    def appraise(
        params: Any,
        normaliser: Normaliser | tuple[()],
        obs: Shaped[Array, "T E O"],
        action: Shaped[Array, "T E *A"],
        head: Float[Array, "T E P"],
        step: Step,
    ) -> Transition:
        final_value = jax.lax.cond(step.truncated.any(), values, no_values, params, normaliser, step.final_obs)
        return Transition(
            obs=obs,
            action=action,
            log_prob=policy.log_prob(head, action),
            value=values(params, normaliser, obs),
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            final_value=final_value,
            episode_return=step.episode_return,
            episode_length=step.episode_length,
        )

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(params: hk.Params) -> tuple[Float[Array, ""], Metrics]:
            head, value = fast_gradients(partial(model.apply, params))(minibatch.obs)
            return ppo_loss(math, policy, head, value, minibatch, state.hyper, config)

        gradient, metrics = jax.grad(objective, has_aux=True)(state.params)
        step, adam = optimiser.update(gradient, state.adam, hyper=state.hyper)
        params = optax.apply_updates(state.params, step)
        return state._replace(params=params, adam=adam), metrics | {"grad_norm": optax.tree.norm(gradient)}

    def minibatch_step(
        carry: tuple[State, Minibatch], index: Int[Array, "B"]
    ) -> tuple[tuple[State, Minibatch], Metrics]:
        state, data = carry
        state, metrics = learn(state, math.take(data, index))
        return (state, data), metrics

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        last_obs = visible(math, state.normaliser, state.env.obs)
        last_value = model.value(state.params, last_obs)
        data = learnable(math, visible_batch(math, state.normaliser, batch), last_value, state.hyper, config)
        key, shuffle_key = jax.random.split(state.key)
        index = math.minibatch_indices(
            shuffle_key,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        (state, _), losses = jax.lax.scan(minibatch_step, (state._replace(key=key), data), index)
        state = state._replace(normaliser=absorbed(math, state.normaliser, batch, state.hyper.gamma))
        return state, jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Shaped[Array, "B *A"]:
        return policy.greedy(model.policy(state.params, visible(math, state.normaliser, obs)))

    def export(state: State) -> Weights:
        return xla.export(LAYOUT, state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
