"""Recurrent PPO in Flax Linen: its own cell, lifted over time by nn.scan."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
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
from benchback.backends import xla
from benchback.backends.linen import with_log_std
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math
from benchback.math.jax import gaussian


class RecurrentActorCritic(nn.Module):
    """An encoder and a cell with memory, shared by the heads of actor and critic."""

    width: int
    num_actions: int
    dtype: jnp.dtype
    continuous: bool
    """Whether actions are continuous; adds a state-independent log standard deviation."""

    def setup(self) -> None:
        kinds: dict[str, Any] = {"dtype": self.dtype, "param_dtype": self.dtype}
        orthogonal = nn.initializers.orthogonal
        self.encoder = nn.Dense(self.width, kernel_init=orthogonal(2**0.5), **kinds)
        self.gru = nn.GRUCell(self.width, kernel_init=orthogonal(), **kinds)
        self.actor = Head(self.width, self.num_actions, 0.01, self.dtype)
        self.critic = Head(self.width, 1, 1.0, self.dtype)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.zeros, (self.num_actions,), self.dtype)

    def __call__(self, memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]) -> Any:
        memory = self.remember(memory, obs)
        return self.policy(memory), self.value(memory)

    def encode(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
        return nn.relu(self.encoder(obs.reshape(len(obs), -1).astype(self.dtype)))

    def remember(self, memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
        return self.gru(memory, self.encode(obs))[0]

    def remember_all(
        self, memory: Float[Array, "B H"], obs: Shaped[Array, "T B *O"], done: Bool[Array, "T B"]
    ) -> Float[Array, "T B H"]:
        x = self.encode(obs.reshape(-1, *obs.shape[2:])).reshape(*done.shape, -1)
        over_time = nn.scan(remember_next, variable_broadcast="params", split_rngs={"params": False})
        return over_time(self.gru, memory, (x, done))[1]

    def policy(self, memory: Float[Array, "B H"]) -> Float[Array, "B P"]:
        out = self.actor(memory)
        return gaussian.parameters(out, self.log_std) if self.continuous else out

    def value(self, memory: Float[Array, "B H"]) -> Float[Array, "B"]:
        return self.critic(memory).squeeze(-1)


class Head(nn.Module):
    """One hidden layer and a linear output layer of its own scale."""

    width: int
    outputs: int
    scale: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B H"]) -> Float[Array, "B K"]:
        x = nn.relu(self.dense(self.width, 2.0, "0")(x))
        return self.dense(self.outputs, self.scale, "1")(x)

    def dense(self, width: int, scale: float, name: str) -> nn.Dense:
        orthogonal = nn.initializers.orthogonal(scale)
        return nn.Dense(width, kernel_init=orthogonal, dtype=self.dtype, param_dtype=self.dtype, name=name)


def remember_next(cell: nn.GRUCell, memory: Float[Array, "B H"], seen: tuple[Any, Bool[Array, "B"]]) -> Any:
    """One step of the scan over time: the next memory, and the one after this observation."""
    x, done = seen
    memory, _ = cell(memory, x)
    return reset_where(done, memory), memory


GATES = {"input": ("ir", "iz", "in"), "hidden": ("hr", "hz", "hn")}
"""Canonical layer -> the layers of nn.GRUCell whose kernels it holds side by side."""


def to_weights(params: Any, prefix: str) -> Weights:
    """Parameters under canonical names, copied."""
    cell, others = params["gru"], {name: part for name, part in params.items() if name != "gru"}
    found = {f"{part}/kernel": np.hstack([cell[x]["kernel"] for x in names]) for part, names in GATES.items()}
    found |= {
        "input/bias": np.hstack([cell[x]["bias"] for x in GATES["input"]]),
        "bias_n": np.array(cell["hn"]["bias"]),
    }
    return xla.named(others, prefix) | {f"{prefix}gru/{name}": x for name, x in found.items()}


def from_weights(template: Any, weights: Weights, prefix: str) -> Any:
    """Canonical weights in the structure of `template`."""
    found = {"hn/bias": weights[f"{prefix}gru/bias_n"]}
    for part, names in GATES.items():
        found |= zip((f"{x}/kernel" for x in names), np.hsplit(weights[f"{prefix}gru/{part}/kernel"], 3), strict=True)
    found |= zip((f"{x}/bias" for x in GATES["input"]), np.split(weights[f"{prefix}gru/input/bias"], 3), strict=True)
    return xla.unnamed(template, weights | {f"{prefix}gru/{name}": x for name, x in found.items()}, prefix)


LAYOUT = xla.Layout(to_weights, from_weights)


class State(NamedTuple):
    params: Network[Any]
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
    model = RecurrentActorCritic(width, env.actions.size, dtype, continuous=env.actions.kind == "box")
    optimiser = math.adam(
        anneal=config.anneal, steps_per_iteration=config.updates_per_iteration, num_iterations=config.num_iterations
    )

    def initial_memory(num_envs: int) -> Float[Array, "E H"]:
        return jnp.zeros((num_envs, width), dtype)

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        params = model.init(model_key, initial_memory(1), jnp.zeros((1, *env.observation_shape)))["params"]
        params = with_log_std(params, hyper.initial_log_std)
        normaliser = init_normaliser(math, config, env.observation_shape, dtype)
        memory, count = initial_memory(config.num_envs), jnp.zeros((), jnp.int32)
        return State(params, optimiser.init(params), count, normaliser, env.reset(env_key), memory, key, hyper)

    def remember(params: Any, memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]) -> Any:
        return model.apply({"params": params}, memory, obs, method="remember")

    def remember_all(params: Any, sequences: Sequences) -> Any:
        given = sequences.memory, sequences.obs, sequences.done
        return model.apply({"params": params}, *given, method="remember_all")

    def policy(params: Any, memory: Float[Array, "B H"]) -> Any:
        return model.apply({"params": params}, memory, method="policy")

    def value(params: Any, memory: Float[Array, "B H"]) -> Any:
        return model.apply({"params": params}, memory, method="value")

    def rollout(state: State) -> tuple[State, Rollout]:
        key, env_key, action_key = jax.random.split(state.key, 3)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = distribution.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        after, seen = jax.lax.scan(rollout_step, state._replace(key=key), (env_noise, action_noise))
        return after, finish_rollout(state, *seen)

    def rollout_step(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        obs = state.env.obs
        memory = remember(state.params, state.memory, normalise_obs(math, state.normaliser, obs))
        policy_params = policy(state.params, memory)
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        state = state._replace(env=env_state, memory=reset_where(step.terminated | step.truncated, memory))
        return state, (obs, action, policy_params, memory, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(
        state: State, obs: Any, action: Any, policy_params: Any, memory: Float[Array, "T E H"], step: Step
    ) -> Rollout:
        log_prob = distribution.log_prob(policy_params, action)
        found = value(state.params, memory.reshape(-1, width)).reshape(memory.shape[:2])
        given = state.params, state.normaliser, memory, step.final_obs
        final_value = jax.lax.cond(any_member(step.truncated.any()), final_values, no_values, *given)
        return Rollout(to_transitions(obs, action, log_prob, found, final_value, step), state.memory)

    def final_values(params: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        rows = normalise_obs(math, normaliser, obs).reshape(-1, *env.observation_shape)
        return value(params, remember(params, memory.reshape(-1, width), rows)).reshape(memory.shape[:2])

    def no_values(params: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        return jnp.zeros(memory.shape[:2], dtype)

    def learn(state: State, sequences: Sequences) -> tuple[State, Metrics]:
        rows = as_rows(sequences)

        def objective(params: Any) -> tuple[Float[Array, ""], Metrics]:
            memory = remember_all(params, sequences).reshape(-1, width)
            found = policy(params, memory), value(params, memory)
            return ppo_loss(math, distribution, *found, rows, state.hyper, config)

        gradient, metrics = jax.grad(objective, has_aux=True)(state.params)
        step, adam = optimiser.update(gradient, state.adam, count=state.adam_count, hyper=state.hyper)
        params = optax.apply_updates(state.params, step)
        state = state._replace(params=params, adam=adam, adam_count=state.adam_count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    def minibatch_step(carry: tuple[State, Sequences], index: Int[Array, "B"]) -> tuple[Any, Metrics]:
        state, data = carry
        state, metrics = learn(state, take(data, index))
        return (state, data), metrics

    def update(state: State, batch: Rollout) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser, state.hyper
        memory = remember(state.params, state.memory, normalise_obs(math, normaliser, state.env.obs))
        seen = normalise_batch(math, normaliser, batch.steps)
        next_value, terminated = bootstrap(math, seen, value(state.params, memory), config.truncation)
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
        memory = remember(state.params, memory, normalise_obs(math, state.normaliser, obs))
        return memory, distribution.greedy(policy(state.params, memory))

    functions = {"init": init, "rollout": rollout, "update": update, "learn": learn, "act": act}
    return xla.agent(State, LAYOUT, config, env, initial_memory=initial_memory, **functions)
