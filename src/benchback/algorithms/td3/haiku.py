"""TD3 in Haiku: functions with modules inside, transformed into pure functions."""

from typing import Any, NamedTuple, cast

import haiku as hk
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
from benchback.backends.haiku import LAYOUT, MLP
from benchback.backends.kernel_gradients import Gradients
from benchback.envs.interface import Env, EnvState
from benchback.math import jax as math

ACTOR, CRITICS = ("actor",), ("critic1", "critic2")
"""The networks that each optimiser updates."""


class ActorCritic(NamedTuple):
    """Separate networks for the actor and two critics, as pure functions of the parameters."""

    init: Any
    policy: Any
    values: Any
    value: Any


def actor_critic(hidden: tuple[int, ...], num_actions: int, dtype: jnp.dtype, gradients: Gradients) -> ActorCritic:
    def policy(obs: Shaped[Array, "B *O"]) -> Float[Array, "B A"]:
        return MLP(hidden, num_actions, 0.01, dtype, "actor", "relu", gradients, HIDDEN_SCALE)(obs)

    def values(obs: Shaped[Array, "B *O"], action: Float[Array, "B A"]) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
        return value(obs, action, "critic1"), value(obs, action, "critic2")

    def value(obs: Shaped[Array, "B *O"], action: Float[Array, "B A"], tower: str = "critic1") -> Float[Array, "B"]:
        inputs = jnp.concatenate([obs.reshape(len(obs), -1), action], -1)
        return MLP(hidden, 1, 1.0, dtype, tower, "relu", gradients, HIDDEN_SCALE)(inputs).squeeze(-1)

    def forward(obs: Shaped[Array, "B *O"], action: Float[Array, "B A"]) -> tuple[Any, ...]:
        return policy(obs), values(obs, action)

    whole, *parts = (hk.without_apply_rng(hk.transform(f)) for f in (forward, policy, values, value))
    return ActorCritic(whole.init, *(part.apply for part in parts))


def select(params: hk.Params, towers: tuple[str, ...]) -> hk.Params:
    return hk.data_structures.filter(lambda module, name, x: module.split("/")[0] in towers, params)


class State(NamedTuple):
    params: Network[hk.Params]
    target: Target[hk.Params]
    actor_adam: Optimiser[math.AdamState]
    actor_adam_count: Counter[Int[Array, ""]]
    critic_adam: Optimiser[math.AdamState]
    critic_adam_count: Counter[Int[Array, ""]]
    replay: Data[math.Replay]
    replay_inserted: Counter[Int[Array, ""]]
    env: Environment[EnvState]
    key: Randomness[Key[Array, ""]]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    bounds = action_bounds(math, env, dtype)
    model = actor_critic(config.hidden, env.actions.size, dtype, gradients)
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        params = model.init(model_key, jnp.zeros((1, *env.observation_shape)), jnp.zeros((1, env.actions.size)))
        env_state = env.reset(env_key)
        obs, zero = env_state.obs[0], jnp.zeros((), dtype)
        row = Experience(obs, jnp.zeros(env.actions.size, dtype), zero, obs, zero.astype(jnp.bool_))
        return State(
            params=params,
            target=jax.tree.map(jnp.copy, params),
            actor_adam=actor_optimiser.init(select(params, ACTOR)),
            actor_adam_count=jnp.zeros((), jnp.int32),
            critic_adam=critic_optimiser.init(select(params, CRITICS)),
            critic_adam_count=jnp.zeros((), jnp.int32),
            replay=math.empty_replay(row, config.replay_capacity),
            replay_inserted=jnp.zeros((), jnp.int32),
            env=env_state,
            key=key,
            hyper=hyper,
        )

    def policy(params: hk.Params, obs: Shaped[Array, "B *O"]) -> Float[Array, "B A"]:
        return math.squash(model.policy(params, obs), bounds)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        action_noise = math.acting_noise(action_key, shape, state.replay_inserted, config.start_steps, dtype)
        return jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))

    def rollout_step(state: State, noise: tuple[Any, math.ActingNoise]) -> tuple[State, Transition]:
        env_noise, action_noise = noise
        obs = state.env.obs
        action = math.explore(policy(state.params, obs), action_noise, bounds, state.hyper.exploration_noise)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), to_transition(obs, action, step)

    def td_target(target: hk.Params, minibatch: Minibatch, hyper: Hyper) -> Float[Array, "B"]:
        noise = math.smoothing_noise(minibatch.noise, hyper.target_noise, hyper.target_noise_clip)
        next_action = math.add_noise(policy(target, minibatch.next_obs), noise, bounds)
        next_value1, next_value2 = model.values(target, minibatch.next_obs, next_action)
        return math.twin_target(minibatch.reward, minibatch.terminated, next_value1, next_value2, hyper.gamma)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        count = state.critic_adam_count
        target = td_target(state.target, minibatch, state.hyper)

        def objective(params: hk.Params) -> tuple[Float[Array, ""], Metrics]:
            return critic_loss(model.values(params, minibatch.obs, minibatch.action), target)

        critics = select(state.params, CRITICS)
        gradient, metrics = jax.grad(objective, has_aux=True)(critics)
        step, critic_adam = critic_optimiser.update(gradient, state.critic_adam, count=count, hyper=state.hyper)
        params = hk.data_structures.merge(state.params, cast(hk.Params, optax.apply_updates(critics, step)))
        state = state._replace(params=params, critic_adam=critic_adam, critic_adam_count=count + 1)
        # lax.cond may copy its operands: keep the replay and the environment out of it.
        learner = state._replace(replay=None, env=None)
        due = count % config.policy_delay == 0
        learner, delayed = jax.lax.cond(due, policy_step, no_policy_step, learner, minibatch.obs)
        state = learner._replace(replay=state.replay, env=state.env)
        return state, metrics | {"critic_grad_norm": optax.tree.norm(gradient)} | delayed

    def policy_step(state: State, obs: Shaped[Array, "B *O"]) -> tuple[State, Metrics]:
        def objective(params: hk.Params) -> tuple[Float[Array, ""], Metrics]:
            action = policy(params, obs)
            return actor_loss(model.value(state.params, obs, action))

        actor, count = select(state.params, ACTOR), state.actor_adam_count
        gradient, metrics = jax.grad(objective, has_aux=True)(actor)
        step, actor_adam = actor_optimiser.update(gradient, state.actor_adam, count=count, hyper=state.hyper)
        params = hk.data_structures.merge(state.params, cast(hk.Params, optax.apply_updates(actor, step)))
        target = math.polyak(state.target, params, 1 - state.hyper.polyak)
        state = state._replace(params=params, target=target, actor_adam=actor_adam, actor_adam_count=count + 1)
        return state, metrics | {"actor_grad_norm": optax.tree.norm(gradient)}

    def no_policy_step(state: State, obs: Shaped[Array, "B *O"]) -> tuple[State, Metrics]:
        return state, nan_metrics(jnp.full, ACTOR_METRICS, dtype)

    def gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        state, losses = jax.lax.scan(learn, state, data)
        return state, mean_metrics(math, losses)

    def no_gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return state, nan_metrics(jnp.full, METRICS, dtype)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        replay = math.insert(state.replay, state.replay_inserted, to_experience(batch, config))
        inserted = state.replay_inserted + config.batch_size
        key, row_key, noise_key = jax.random.split(state.key, 3)
        index = math.sample_indices(row_key, replay, inserted, (config.gradient_rows,))
        noise = math.gaussian.noise(noise_key, (config.num_updates, config.minibatch_size, env.actions.size), dtype)
        data = make_minibatches(math.gather(replay, index), noise, config)
        learner = state._replace(replay=None, replay_inserted=inserted, env=None, key=key)
        learns = inserted >= config.update_after
        learner, losses = jax.lax.cond(learns, gradient_steps, no_gradient_steps, learner, data)
        return learner._replace(replay=replay, env=state.env), losses | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Float[Array, "B A"]]:
        return memory, policy(state.params, obs)

    return xla.agent(State, LAYOUT, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
