"""Recurrent PPO in Equinox: its own cell, called on one sample and vmapped; time is a scan."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from benchback.agent import (
    Agent,
    Counter,
    Data,
    Environment,
    HyperParameters,
    Memory,
    Metrics,
    Network,
    Optimiser,
    Randomness,
    Weights,
)
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import (
    Normaliser,
    init_normaliser,
    normalise_batch,
    normalise_obs,
    update_normaliser,
)
from benchback.algorithms.onpolicy import action_distribution, bootstrap, to_transitions
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import ppo_loss
from benchback.algorithms.ppo.recurrent.sequences import Rollout, Sequences, as_rows, make_sequences, reset_where, take
from benchback.backends import equinox as backend
from benchback.backends import xla
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math
from benchback.math.jax import gaussian


class RecurrentActorCritic(eqx.Module):
    """An encoder and a cell with memory, shared by the heads of actor and critic; called on one sample."""

    encoder: eqx.nn.Linear
    gru: eqx.nn.GRUCell
    actor: list[eqx.nn.Linear]
    critic: list[eqx.nn.Linear]
    log_std: Float[Array, "A"] | None
    """Log standard deviation of continuous actions; None for discrete actions."""

    def __init__(self, sizes: tuple[int, int, int], dtype: jnp.dtype, log_std: Any, key: Key[Array, ""]):
        inputs, width, num_actions = sizes
        keys = iter(jax.random.split(key, 6))

        def dense(fan_in: int, fan_out: int, scale: float) -> eqx.nn.Linear:
            layer_key = next(keys)
            return backend.orthogonal(eqx.nn.Linear(fan_in, fan_out, dtype=dtype, key=layer_key), scale, layer_key)

        self.encoder = dense(inputs, width, 2**0.5)
        self.gru = cell(width, dtype, next(keys))
        self.actor = [dense(width, width, 2.0), dense(width, num_actions, 0.01)]
        self.critic = [dense(width, width, 2.0), dense(width, 1, 1.0)]
        self.log_std = None if log_std is None else jnp.full(num_actions, log_std, dtype)

    def encode(self, obs: Shaped[Array, "*O"]) -> Float[Array, "H"]:
        return jax.nn.relu(self.encoder(obs.reshape(-1).astype(self.encoder.weight.dtype)))

    def remember(self, memory: Float[Array, "H"], obs: Shaped[Array, "*O"]) -> Float[Array, "H"]:
        return self.gru(self.encode(obs), memory)

    def remember_all(
        self, memory: Float[Array, "B H"], obs: Shaped[Array, "T B *O"], done: Bool[Array, "T B"]
    ) -> Float[Array, "T B H"]:
        x = jax.vmap(jax.vmap(self.encode))(obs)
        return jax.lax.scan(remember_next, (self.gru, memory), (x, done))[1]

    def policy(self, memory: Float[Array, "H"]) -> Float[Array, "P"]:
        out = self.actor[1](jax.nn.relu(self.actor[0](memory)))
        return out if self.log_std is None else gaussian.parameters(out, self.log_std)

    def value(self, memory: Float[Array, "H"]) -> Float[Array, ""]:
        return self.critic[1](jax.nn.relu(self.critic[0](memory))).squeeze(-1)


def remember_next(carry: tuple[Any, Float[Array, "B H"]], seen: tuple[Any, Bool[Array, "B"]]) -> Any:
    """One step of the scan over time: the next memory, and the one after this observation."""
    cell, memory = carry
    x, done = seen
    memory = jax.vmap(cell)(x, memory)
    return (cell, reset_where(done, memory)), memory


def cell(width: int, dtype: jnp.dtype, key: Key[Array, ""]) -> eqx.nn.GRUCell:
    """Equinox's cell with orthogonal weights, gate by gate, and zero biases."""
    own = eqx.nn.GRUCell(width, width, dtype=dtype, key=key)
    orthogonal = jax.vmap(lambda key: jax.nn.initializers.orthogonal()(key, (width, width), dtype))
    kernels = orthogonal(jax.random.split(key, 6)).reshape(2, 3 * width, width)
    zeros = jnp.zeros(3 * width, dtype), jnp.zeros(width, dtype)
    return eqx.tree_at(lambda m: (m.weight_ih, m.weight_hh, m.bias, m.bias_n), own, (*kernels, *zeros))


OF_CELL = {
    "gru/weight_ih": "gru/input/kernel",
    "gru/weight_hh": "gru/hidden/kernel",
    "gru/bias": "gru/input/bias",
    "gru/bias_n": "gru/bias_n",
}
"""Parameters of eqx.nn.GRUCell -> their canonical names."""


def to_weights(params: Any, prefix: str) -> Weights:
    """Parameters under canonical names, copied; the cell's weights are [out, in], as those of its layers."""
    own, found = xla.named(params.gru, f"{prefix}gru/"), backend.to_weights(params, prefix)
    for name, canonical in OF_CELL.items():
        found.pop(prefix + name)
        found[prefix + canonical] = np.array(own[prefix + name].T)
    return found


def from_weights(template: Any, weights: Weights, prefix: str) -> Any:
    """Canonical weights in the structure of `template`."""
    own = {prefix + name: weights[prefix + canonical].T for name, canonical in OF_CELL.items()}
    return backend.from_weights(template, weights | own, prefix)


LAYOUT = xla.Layout(to_weights, from_weights)


class State(NamedTuple):
    model: Network[RecurrentActorCritic]
    adam: Optimiser[math.AdamState]
    adam_count: Counter[Int[Array, ""]]
    normaliser: Data[Normaliser | tuple[()]]
    env: Environment[EnvState]
    memory: Memory[Float[Array, "E H"]]
    key: Randomness[Key[Array, ""]]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env) -> Agent:
    dtype = xla.dtype(config.dtype)
    distribution = action_distribution(math, env.actions)
    (width,) = config.hidden
    optimiser = math.adam(
        anneal=config.anneal, steps_per_iteration=config.updates_per_iteration, num_iterations=config.num_iterations
    )

    def initial_memory(num_envs: int) -> Float[Array, "E H"]:
        return jnp.zeros((num_envs, width), dtype)

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        log_std = None if env.actions.kind == "discrete" else hyper.initial_log_std
        model = RecurrentActorCritic((env.observation_size, width, env.actions.size), dtype, log_std, model_key)
        adam = optimiser.init(eqx.filter(model, eqx.is_array))
        normaliser = init_normaliser(math, config, env.observation_shape, dtype)
        memory, count = initial_memory(config.num_envs), jnp.zeros((), jnp.int32)
        return State(model, adam, count, normaliser, env.reset(env_key), memory, key, hyper)

    def rollout(state: State) -> tuple[State, Rollout]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = distribution.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        after, seen = jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))
        return after, finish_rollout(state, *seen)

    def rollout_step(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        obs = state.env.obs
        memory = jax.vmap(state.model.remember)(state.memory, normalise_obs(math, state.normaliser, obs))
        policy_params = jax.vmap(state.model.policy)(memory)
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        state = state._replace(env=env_state, memory=reset_where(step.terminated | step.truncated, memory))
        return state, (obs, action, policy_params, memory, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(
        state: State, obs: Any, action: Any, policy_params: Any, memory: Float[Array, "T E H"], step: Step
    ) -> Rollout:
        log_prob = distribution.log_prob(policy_params, action)
        found = jax.vmap(state.model.value)(memory.reshape(-1, width)).reshape(memory.shape[:2])
        given = state.model, state.normaliser, memory, step.final_obs
        final_value = jax.lax.cond(any_member(step.truncated.any()), final_values, no_values, *given)
        return Rollout(to_transitions(obs, action, log_prob, found, final_value, step), state.memory)

    def final_values(model: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        rows = normalise_obs(math, normaliser, obs).reshape(-1, *env.observation_shape)
        remembered = jax.vmap(model.remember)(memory.reshape(-1, width), rows)
        return jax.vmap(model.value)(remembered).reshape(memory.shape[:2])

    def no_values(model: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        return jnp.zeros(memory.shape[:2], dtype)

    def learn(state: State, sequences: Sequences) -> tuple[State, Metrics]:
        rows = as_rows(sequences)

        def objective(model: RecurrentActorCritic) -> tuple[Float[Array, ""], Metrics]:
            memory = model.remember_all(sequences.memory, sequences.obs, sequences.done).reshape(-1, width)
            found = jax.vmap(model.policy)(memory), jax.vmap(model.value)(memory)
            return ppo_loss(math, distribution, *found, rows, state.hyper, config)

        gradient, metrics = eqx.filter_grad(objective, has_aux=True)(state.model)
        step, adam = optimiser.update(gradient, state.adam, count=state.adam_count, hyper=state.hyper)
        model = eqx.apply_updates(state.model, step)
        state = state._replace(model=model, adam=adam, adam_count=state.adam_count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    def minibatch_step(carry: tuple[State, Sequences], index: Int[Array, "B"]) -> tuple[Any, Metrics]:
        state, data = carry
        state, metrics = learn(state, take(data, index))
        return (state, data), metrics

    def update(state: State, batch: Rollout) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser, state.hyper
        memory = jax.vmap(state.model.remember)(state.memory, normalise_obs(math, normaliser, state.env.obs))
        seen = normalise_batch(math, normaliser, batch.steps)
        next_value, terminated = bootstrap(math, seen, jax.vmap(state.model.value)(memory), config.truncation)
        advantage = math.gae(
            seen.reward, seen.value, next_value, terminated, seen.done, gamma=hyper.gamma, lam=hyper.gae_lambda
        )
        key, shuffle_key = jax.random.split(state.key)
        index = math.minibatch_indices(
            shuffle_key,
            batch_size=config.num_envs,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        carry = state._replace(key=key), make_sequences(seen, batch.memory, advantage)
        (state, _), losses = jax.lax.scan(minibatch_step, carry, index)
        state = state._replace(normaliser=update_normaliser(math, normaliser, batch.steps, hyper.gamma))
        return state, jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch.steps)

    def act(
        state: State, memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]
    ) -> tuple[Float[Array, "B H"], Shaped[Array, "B *A"]]:
        memory = jax.vmap(state.model.remember)(memory, normalise_obs(math, state.normaliser, obs))
        return memory, distribution.greedy(jax.vmap(state.model.policy)(memory))

    functions = {"init": init, "rollout": rollout, "update": update, "learn": learn, "act": act}
    return xla.agent(State, LAYOUT, config, env, initial_memory=initial_memory, **functions)
