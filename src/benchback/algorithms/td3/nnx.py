"""TD3 in Flax NNX: one object that holds everything and is mutated in place."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Key, Shaped, UInt32

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Experience, Transition, remembered
from benchback.algorithms.td3.config import Config, Hyper
from benchback.algorithms.td3.loss import (
    ACTOR_METRICS,
    METRICS,
    Minibatch,
    action_bounds,
    actor_loss,
    averaged,
    critic_loss,
    critic_target,
    minibatches,
    smoothed,
)
from benchback.backends import xla
from benchback.backends.kernel_gradients import fast_gradients
from benchback.backends.nnx import MLP, exported, transplant
from benchback.envs.interface import Env, EnvState
from benchback.math import jax as math

ACTOR = nnx.PathContains("actor")
CRITICS = nnx.Not(ACTOR)
"""The towers that each optimiser moves."""


class ActorCritic(nnx.Module):
    """Separate towers for the policy and two values."""

    def __init__(
        self, size: int, hidden: tuple[int, ...], num_actions: int, dtype: jnp.dtype, *, rngs: nnx.Rngs
    ) -> None:
        self.actor = MLP(size, hidden, num_actions, 0.01, dtype, "relu", rngs=rngs)
        self.critic1 = MLP(size + num_actions, hidden, 1, 1.0, dtype, "relu", rngs=rngs)
        self.critic2 = MLP(size + num_actions, hidden, 1, 1.0, dtype, "relu", rngs=rngs)

    def head(self, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
        return self.actor(obs)

    def values(
        self, obs: Shaped[Array, "B O"], action: Float[Array, "B A"]
    ) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
        both = jnp.concatenate([obs, action], -1)
        return self.critic1(both).squeeze(-1), self.critic2(both).squeeze(-1)

    def value(self, obs: Shaped[Array, "B O"], action: Float[Array, "B A"]) -> Float[Array, "B"]:
        return self.critic1(jnp.concatenate([obs, action], -1)).squeeze(-1)


class State(nnx.Pytree):
    """All that changes, each part an object or a variable that is assigned to."""

    def __init__(
        self,
        model: ActorCritic,
        target: ActorCritic,
        actor_adam: nnx.Optimizer,
        critic_adam: nnx.Optimizer,
        replay: math.Replay,
        env: EnvState,
        key: Key[Array, ""],
        hyper: Hyper,
    ) -> None:
        self.model = model
        self.target = target
        self.actor_adam = actor_adam
        self.critic_adam = critic_adam
        self.replay = nnx.Variable(replay)
        self.env = nnx.Variable(env)
        self.key = nnx.Variable(key)
        self.hyper = nnx.Variable(hyper)


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    bounds = action_bounds(math, env, dtype)
    actor_optimiser, critic_optimiser = (
        math.adam(anneal=False, steps_per_iteration=1, num_iterations=1, clip=False, rate=rate)
        for rate in ("actor_learning_rate", "critic_learning_rate")
    )

    @nnx.jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        rngs = nnx.Rngs(params=model_key)
        model = ActorCritic(env.observation_size, config.hidden, env.actions.size, dtype, rngs=rngs)
        actor_adam = nnx.Optimizer(model, actor_optimiser, wrt=ACTOR)
        critic_adam = nnx.Optimizer(model, critic_optimiser, wrt=CRITICS)
        env_state = env.reset(env_key)
        replay = math.empty_replay(example(env_state.obs[0]), config.replay_capacity)
        return model, nnx.clone(model), actor_adam, critic_adam, replay, env_state, key

    def example(obs: Shaped[Array, "O"]) -> Experience:
        return Experience(obs, jnp.zeros(env.actions.size, dtype), jnp.zeros((), dtype), obs, jnp.zeros((), bool))

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return transplant(weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def policy(model: ActorCritic, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
        return math.squash(model.head(obs), bounds)

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        inserted = state.replay.get_value().inserted
        action_noise = math.acting_noise(action_key, shape, inserted, config.start_steps, dtype)
        return rollout_steps(state, (env_noise, action_noise))

    # Tree mode (graph=False) suffices where nothing is shared, and costs half where nothing is compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, math.ActingNoise]) -> tuple[State, Transition]:
        env_noise, action_noise = noise
        env_state = state.env.get_value()
        obs, scale = env_state.obs, state.hyper.get_value().exploration_noise
        action = math.explore(policy(state.model, obs), action_noise, bounds, scale)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, Transition(obs, action, *step[1:])

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        hyper = state.hyper.get_value()
        target = aim(state.target, minibatch, hyper)

        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            estimates = fast_gradients(model.values)(minibatch.obs, minibatch.action)
            return critic_loss(estimates, target)

        due = state.critic_adam.opt_state.count[...] % config.policy_delay == 0
        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, CRITICS), has_aux=True)(state.model)
        state.critic_adam.update(state.model, gradient, hyper=hyper)
        delayed = nnx.cond(due, policy_step, no_policy_step, state, minibatch.obs)
        return state, metrics | {"critic_grad_norm": optax.tree.norm(gradient)} | delayed

    def aim(target: ActorCritic, minibatch: Minibatch, hyper: Hyper) -> Float[Array, "B"]:
        action = smoothed(math, policy(target, minibatch.next_obs), minibatch.noise, bounds, hyper)
        return critic_target(math, target.values(minibatch.next_obs, action), minibatch, hyper)

    def policy_step(state: State, obs: Shaped[Array, "B O"]) -> Metrics:
        hyper = state.hyper.get_value()

        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            action = fast_gradients(partial(policy, model))(obs)
            return actor_loss(model.value(obs, action))

        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, ACTOR), has_aux=True)(state.model)
        state.actor_adam.update(state.model, gradient, hyper=hyper)
        nnx.update(state.target, math.polyak(nnx.state(state.target), nnx.state(state.model), 1 - hyper.polyak))
        return metrics | {"actor_grad_norm": optax.tree.norm(gradient)}

    def no_policy_step(state: State, obs: Shaped[Array, "B O"]) -> Metrics:
        return unknown(ACTOR_METRICS)

    def unknown(names: tuple[str, ...]) -> Metrics:
        return dict.fromkeys(names, jnp.full((), jnp.nan, dtype))

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        replay = math.insert(state.replay.get_value(), remembered(batch, config))
        key, row_key, noise_key = jax.random.split(state.key.get_value(), 3)
        index = math.sample_indices(row_key, replay, (config.gradient_rows,))
        noise = math.gaussian.noise(noise_key, (config.num_updates, config.minibatch_size, env.actions.size), dtype)
        data = minibatches(math.gather(replay, index), noise, config)
        state.replay.set_value(replay)
        state.key.set_value(key)
        # nnx.cond wraps its branches anew at each call: where nothing is compiled, each call would compile them.
        enough = replay.inserted >= config.update_after
        learnt, losses = jax.lax.cond(enough, gradient_steps, no_steps, state, data)
        nnx.update(state, nnx.state(learnt))
        return state, losses | episode_metrics(math, batch)

    def gradient_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        state, losses = learn_steps(state, data)
        return state, averaged(math, losses)

    learn_steps = nnx.scan(learn, graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))

    def no_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return state, unknown(METRICS)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Float[Array, "B A"]:
        return policy(state.model, obs)

    def export(state: State) -> Weights:
        return exported(state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
