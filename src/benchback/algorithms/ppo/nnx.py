"""PPO in Flax NNX: one object that holds everything and is mutated in place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Key, Shaped, UInt32

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import Normaliser, absorbed, fresh_normaliser, visible, visible_batch
from benchback.algorithms.onpolicy import Transition, distribution
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import Minibatch, learnable, ppo_loss
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

    def __call__(self, obs: Shaped[Array, "B O"]) -> tuple[Float[Array, "B P"], Float[Array, "B"]]:
        return self.policy(obs), self.value(obs)

    def policy(self, obs: Shaped[Array, "B O"]) -> Float[Array, "B P"]:
        out = self.actor(obs)
        return math.gaussian.parameters(out, self.log_std[...]) if hasattr(self, "log_std") else out

    def value(self, obs: Shaped[Array, "B O"]) -> Float[Array, "B"]:
        return self.critic(obs).squeeze(-1)


class State(nnx.Pytree):
    """All that changes, each part an object or a variable that is assigned to."""

    def __init__(
        self,
        model: ActorCritic,
        adam: nnx.Optimizer,
        normaliser: Normaliser | tuple[()],
        env: EnvState,
        key: Key[Array, ""],
        hyper: Hyper,
    ) -> None:
        self.model = model
        self.adam = adam
        self.normaliser = nnx.Variable(normaliser)
        self.env = nnx.Variable(env)
        self.key = nnx.Variable(key)
        self.hyper = nnx.Variable(hyper)


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    policy = distribution(math, env.actions)
    initial_log_std = None if env.actions.kind == "discrete" else config.initial_log_std
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.num_iterations,
    )

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
        adam = nnx.Optimizer(model, optimiser, wrt=nnx.Param)
        normaliser = fresh_normaliser(math, config, env.observation_size, dtype)
        return model, adam, normaliser, env.reset(env_key), key

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
        return state, appraise(state.model, state.normaliser.get_value(), *seen)

    # Tree mode (graph=False) suffices where nothing is shared, and costs half where nothing is compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        env_state = state.env.get_value()
        obs = env_state.obs
        head = state.model.policy(visible(math, state.normaliser.get_value(), obs))
        action = policy.sample(head, action_noise)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, (obs, action, head, step._replace(obs=None))

    def values(model: ActorCritic, normaliser: Any, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        rows = visible(math, normaliser, obs).reshape(-1, env.observation_size)
        return model.value(rows).reshape(obs.shape[:-1])

    def no_values(model: ActorCritic, normaliser: Any, obs: Shaped[Array, "T E O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:-1], dtype)

    # Nothing in a step needs a value: those of all steps cost less in one go, outside the loop.
    def appraise(
        model: ActorCritic,
        normaliser: Normaliser | tuple[()],
        obs: Shaped[Array, "T E O"],
        action: Shaped[Array, "T E *A"],
        head: Float[Array, "T E P"],
        step: Step,
    ) -> Transition:
        final_value = jax.lax.cond(step.truncated.any(), values, no_values, model, normaliser, step.final_obs)
        return Transition(
            obs=obs,
            action=action,
            log_prob=policy.log_prob(head, action),
            value=values(model, normaliser, obs),
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            final_value=final_value,
            episode_return=step.episode_return,
            episode_length=step.episode_length,
        )

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        hyper = state.hyper.get_value()

        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            head, value = fast_gradients(model)(minibatch.obs)
            return ppo_loss(math, policy, head, value, minibatch, hyper, config)

        gradient, metrics = nnx.grad(objective, has_aux=True)(state.model)
        state.adam.update(state.model, gradient, hyper=hyper)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    @nnx.scan(graph=False, in_axes=(nnx.Carry, None, 0), out_axes=(nnx.Carry, 0))
    def minibatch_steps(state: State, data: Minibatch, index: Int[Array, "B"]) -> tuple[State, Metrics]:
        return learn(state, math.take(data, index))

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser.get_value(), state.hyper.get_value()
        last_value = state.model.value(visible(math, normaliser, state.env.get_value().obs))
        data = learnable(math, visible_batch(math, normaliser, batch), last_value, hyper, config)
        key, shuffle_key = jax.random.split(state.key.get_value())
        state.key.set_value(key)
        index = math.minibatch_indices(
            shuffle_key,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        state, losses = minibatch_steps(state, data, index)
        state.normaliser.set_value(absorbed(math, normaliser, batch, hyper.gamma))
        return state, jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch)

    def act(state: State, obs: Shaped[Array, "B O"]) -> Shaped[Array, "B *A"]:
        return policy.greedy(state.model.policy(visible(math, state.normaliser.get_value(), obs)))

    def export(state: State) -> Weights:
        return exported(state)

    return Agent(init=init, rollout=rollout, update=update, learn=learn, act=act, export=export)
