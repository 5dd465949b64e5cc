"""VPG in Equinox: the model is a tree of arrays, called on one sample and vmapped over the batch."""

from typing import Any, NamedTuple

import equinox as eqx
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
from benchback.backends.equinox import LAYOUT, MLP
from benchback.backends.kernel_gradients import fast_gradients
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math


class ActorCritic(eqx.Module):
    """Separate towers for policy and value; one sample."""

    actor: MLP
    critic: MLP
    log_std: Float[Array, "A"] | None
    """Of real-valued actions; None where they are discrete."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        num_actions: int,
        dtype: jnp.dtype,
        initial_log_std: float | None,
        key: Key[Array, ""],
    ):
        actor_key, critic_key = jax.random.split(key)
        self.actor = MLP((*sizes, num_actions), 0.01, dtype, actor_key)
        self.critic = MLP((*sizes, 1), 1.0, dtype, critic_key)
        self.log_std = None if initial_log_std is None else jnp.full(num_actions, initial_log_std, dtype)

    def policy(self, obs: Shaped[Array, "O"]) -> Float[Array, "P"]:
        out = self.actor(obs)
        return out if self.log_std is None else math.gaussian.parameters(out, self.log_std)

    def value(self, obs: Shaped[Array, "O"]) -> Float[Array, ""]:
        return self.critic(obs).squeeze(-1)


def parts(model: ActorCritic) -> tuple[Any, Any]:
    """The policy and the value, each a model that lacks the other."""
    return eqx.partition(model, eqx.tree_at(lambda m: m.critic, jax.tree.map(lambda _: True, model), replace=False))


class State(NamedTuple):
    model: ActorCritic
    actor_adam: optax.ScaleByAdamState
    critic_adam: optax.ScaleByAdamState
    env: EnvState
    key: Key[Array, ""]
    hyper: Hyper


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    policy = distribution(math, env.actions)
    initial_log_std = None if env.actions.kind == "discrete" else config.initial_log_std
    sizes = (env.observation_size, *config.hidden)
    actor_optimiser = math.adam(clip=False, rate="actor_learning_rate")
    critic_optimiser = math.adam(clip=False, rate="critic_learning_rate")

    @eqx.filter_jit
    def fresh(seed: UInt32[Array | np.ndarray | np.uint32, ""]) -> tuple[Any, ...]:
        key, model_key, env_key = jax.random.split(jax.random.key(seed), 3)
        model = ActorCritic(sizes, env.actions.size, dtype, initial_log_std, model_key)
        of_policy, of_value = parts(model)
        return model, actor_optimiser.init(of_policy), critic_optimiser.init(of_value), env.reset(env_key), key

    def init(seed: int, weights: Weights | None = None) -> State:
        with xla.optimising(False):
            parts = fresh(np.uint32(seed))
        return xla.transplant(LAYOUT, weights, State(*parts, hyper=xla.as_data(config.hyper, dtype)))

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = policy.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))
        return state, appraise(state.model, *seen)

    def rollout_step(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        obs = state.env.obs
        head = jax.vmap(state.model.policy)(obs)
        action = policy.sample(head, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        return state._replace(env=env_state), (obs, action, head, step._replace(obs=None))

    def values(model: ActorCritic, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        return jax.vmap(model.value)(obs.reshape(-1, env.observation_size)).reshape(obs.shape[:-1])

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
            head = fast_gradients(jax.vmap(model.policy))(minibatch.obs)
            return policy_loss(math, policy, head, minibatch)

        of_policy, of_value = parts(state.model)
        gradient, metrics = eqx.filter_grad(objective, has_aux=True)(of_policy)
        step, adam = actor_optimiser.update(gradient, state.actor_adam, hyper=state.hyper)
        moved = eqx.apply_updates(of_policy, step)
        change = policy_change(math, policy, jax.vmap(moved.policy)(minibatch.obs), minibatch)
        state = state._replace(model=eqx.combine(moved, of_value), actor_adam=adam)
        return state, metrics | change | {"actor_grad_norm": optax.tree.norm(gradient)}

    def value_step(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            return value_loss(fast_gradients(jax.vmap(model.value))(minibatch.obs), minibatch)

        of_policy, of_value = parts(state.model)
        gradient, metrics = eqx.filter_grad(objective, has_aux=True)(of_value)
        step, adam = critic_optimiser.update(gradient, state.critic_adam, hyper=state.hyper)
        moved = eqx.apply_updates(of_value, step)
        state = state._replace(model=eqx.combine(of_policy, moved), critic_adam=adam)
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
        last_value = jax.vmap(state.model.value)(state.env.obs)
        data = learnable(math, batch, last_value, state.hyper, config)
        state, policy_metrics = policy_step(state, data)
        (state, _), history = jax.lax.scan(next_value_step, (state, data), length=config.num_value_steps)
        return state, policy_metrics | jax.tree.map(jnp.mean, history) | episode_metrics(math, batch)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Shaped[Array, "B *A"]:
        return policy.greedy(jax.vmap(state.model.policy)(obs))

    def export(state: State) -> Weights:
        return xla.export(LAYOUT, state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
