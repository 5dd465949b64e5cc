"""VPG in Flax NNX: one object that holds everything and is mutated in place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Key, Shaped, UInt32

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.onpolicy import Transition, distribution
from benchback.algorithms.vpg.config import Config, Hyper
from benchback.algorithms.vpg.loss import Minibatch, learnable, policy_change, policy_loss, value_loss
from benchback.backends import xla
from benchback.backends.kernel_gradients import fast_gradients
from benchback.backends.nnx import MLP, exported, transplant
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math


class ActorCritic(nnx.Module):
    """Separate towers for policy and value."""

    def __init__(
        self,
        observation_size: int,
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        initial_log_std: float | None,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.actor = MLP(observation_size, hidden, num_actions, 0.01, dtype, rngs=rngs)
        self.critic = MLP(observation_size, hidden, 1, 1.0, dtype, rngs=rngs)
        # Of real-valued actions.
        if initial_log_std is not None:
            self.log_std = nnx.Param(jnp.full(num_actions, initial_log_std, dtype))

    def policy(self, obs: Shaped[Array, "B O"]) -> Float[Array, "B P"]:
        out = self.actor(obs)
        return math.gaussian.parameters(out, self.log_std[...]) if hasattr(self, "log_std") else out

    def value(self, obs: Shaped[Array, "B O"]) -> Float[Array, "B"]:
        return self.critic(obs).squeeze(-1)


OF_VALUE = nnx.All(nnx.Param, nnx.PathContains("critic"))
OF_POLICY = nnx.All(nnx.Param, nnx.Not(nnx.PathContains("critic")))


class State(nnx.Pytree):
    """All that changes, each part an object or a variable that is assigned to."""

    def __init__(
        self,
        model: ActorCritic,
        actor_adam: nnx.Optimizer,
        critic_adam: nnx.Optimizer,
        env: EnvState,
        key: Key[Array, ""],
        hyper: Hyper,
    ) -> None:
        self.model = model
        self.actor_adam = actor_adam
        self.critic_adam = critic_adam
        self.env = nnx.Variable(env)
        self.key = nnx.Variable(key)
        self.hyper = nnx.Variable(hyper)


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    policy = distribution(math, env.actions)
    initial_log_std = None if env.actions.kind == "discrete" else config.initial_log_std
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    @nnx.jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        model = ActorCritic(
            env.observation_size,
            config.hidden,
            env.actions.size,
            dtype,
            initial_log_std,
            rngs=nnx.Rngs(params=model_key),
        )
        actor_adam = nnx.Optimizer(model, actor_optimiser, wrt=OF_POLICY)
        critic_adam = nnx.Optimizer(model, critic_optimiser, wrt=OF_VALUE)
        return model, actor_adam, critic_adam, env.reset(env_key), key

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return transplant(weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = policy.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = rollout_steps(state, (env_noise, action_noise))
        return state, appraise(state.model, *seen)

    # Tree mode (graph=False) suffices where nothing is shared, and costs half where nothing is compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        env_state = state.env.get_value()
        obs = env_state.obs
        head = state.model.policy(obs)
        action = policy.sample(head, action_noise)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, (obs, action, head, step._replace(obs=None))

    def values(model: ActorCritic, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        return model.value(obs.reshape(-1, env.observation_size)).reshape(obs.shape[:-1])

    def no_values(model: ActorCritic, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:-1], dtype)

    # Nothing in a step needs a value: those of all steps cost less in one go, outside the loop.
    def appraise(
        model: ActorCritic,
        obs: Shaped[Array, "T E O"],
        action: Shaped[Array, "T E *A"],
        head: Float[Array, "T E P"],
        step: Step,
    ) -> Transition:
        final_value = jax.lax.cond(step.truncated.any(), values, no_values, model, step.final_obs)
        return Transition(
            obs=obs,
            action=action,
            log_prob=policy.log_prob(head, action),
            value=values(model, obs),
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            final_value=final_value,
            episode_return=step.episode_return,
            episode_length=step.episode_length,
        )

    def policy_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            return policy_loss(math, policy, fast_gradients(model.policy)(minibatch.obs), minibatch)

        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, OF_POLICY), has_aux=True)(state.model)
        state.actor_adam.update(state.model, gradient, hyper=state.hyper.get_value())
        change = policy_change(math, policy, state.model.policy(minibatch.obs), minibatch)
        return state, metrics | change | {"actor_grad_norm": optax.tree.norm(gradient)}

    def value_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            return value_loss(fast_gradients(model.value)(minibatch.obs), minibatch)

        gradient, metrics = nnx.grad(objective, argnums=nnx.DiffState(0, OF_VALUE), has_aux=True)(state.model)
        state.critic_adam.update(state.model, gradient, hyper=state.hyper.get_value())
        return state, metrics | {"critic_grad_norm": optax.tree.norm(gradient)}

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        state, policy_metrics = policy_step(state, minibatch)
        state, value_metrics = value_step(state, minibatch)
        return state, policy_metrics | value_metrics

    @nnx.scan(graph=False, length=config.num_value_steps, in_axes=(nnx.Carry, None), out_axes=(nnx.Carry, 0))
    def value_steps(state: State, data: Minibatch) -> tuple[State, Metrics]:
        return value_step(state, data)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        last_value = state.model.value(state.env.get_value().obs)
        data = learnable(math, batch, last_value, state.hyper.get_value(), config)
        state, policy_metrics = policy_step(state, data)
        state, history = value_steps(state, data)
        return state, policy_metrics | jax.tree.map(jnp.mean, history) | episode_metrics(math, batch)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Shaped[Array, "B *A"]:
        return policy.greedy(state.model.policy(obs))

    def export(state: State) -> Weights:
        return exported(state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
