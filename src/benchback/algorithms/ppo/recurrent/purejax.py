"""Recurrent PPO in plain JAX: parameters are dictionaries, a cell is six lines, time is a scan."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
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
from benchback.backends.purejax import LAYOUT
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math
from benchback.math.jax import gaussian

Layer = dict[str, Any]


class RecurrentActorCritic(NamedTuple):
    """Parameters of an encoder and a cell with memory, shared by the heads of actor and critic."""

    encoder: Layer
    gru: dict[str, Any]
    actor: list[Layer]
    critic: list[Layer]
    log_std: Float[Array, "A"] | None
    """Log standard deviation of continuous actions; None for discrete actions."""


def init_network(key: Key[Array, ""], sizes: tuple[int, int, int], dtype: Any, log_std: Any) -> RecurrentActorCritic:
    """Orthogonal kernels and zero biases; `sizes` are those of an observation, of the memory and of the policy."""
    inputs, width, num_actions = sizes
    keys = iter(jax.random.split(key, 11))

    def kernel(fan_in: int, fan_out: int, scale: float) -> Float[Array, "I O"]:
        return jax.nn.initializers.orthogonal(scale)(next(keys), (fan_in, fan_out), dtype)

    def dense(fan_in: int, fan_out: int, scale: float) -> Layer:
        return {"kernel": kernel(fan_in, fan_out, scale), "bias": jnp.zeros(fan_out, dtype)}

    def gates() -> Float[Array, "H K"]:
        return jnp.concatenate([kernel(width, width, 1.0) for _ in range(3)], axis=1)

    return RecurrentActorCritic(
        encoder=dense(inputs, width, 2**0.5),
        gru={
            "input": {"kernel": gates(), "bias": jnp.zeros(3 * width, dtype)},
            "hidden": {"kernel": gates()},
            "bias_n": jnp.zeros(width, dtype),
        },
        actor=[dense(width, width, 2.0), dense(width, num_actions, 0.01)],
        critic=[dense(width, width, 2.0), dense(width, 1, 1.0)],
        log_std=None if log_std is None else jnp.full(num_actions, log_std, dtype),
    )


def encode(params: RecurrentActorCritic, obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
    """The input of the cell; flattens observations."""
    kernel = params.encoder["kernel"]
    return jax.nn.relu(obs.reshape(len(obs), -1).astype(kernel.dtype) @ kernel + params.encoder["bias"])


def gru(cell: dict[str, Any], x: Float[Array, "B H"], memory: Float[Array, "B H"]) -> Float[Array, "B H"]:
    """The memory after an input, which is also the cell's output: gates r and z, candidate n, (1 - z) n + z memory."""
    input_r, input_z, input_n = jnp.split(x @ cell["input"]["kernel"] + cell["input"]["bias"], 3, axis=1)
    hidden_r, hidden_z, hidden_n = jnp.split(memory @ cell["hidden"]["kernel"], 3, axis=1)
    r = jax.nn.sigmoid(input_r + hidden_r)
    z = jax.nn.sigmoid(input_z + hidden_z)
    n = jnp.tanh(input_n + r * (hidden_n + cell["bias_n"]))
    return (1 - z) * n + z * memory


def remember(params: RecurrentActorCritic, memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]) -> Any:
    """The memory after one observation."""
    return gru(params.gru, encode(params, obs), memory)


def remember_all(
    params: RecurrentActorCritic,
    memory: Float[Array, "B H"],
    obs: Shaped[Array, "T B *O"],
    done: Bool[Array, "T B"],
) -> Float[Array, "T B H"]:
    """The memory after every observation of sequences, in which episodes end where `done`."""
    x = encode(params, obs.reshape(-1, *obs.shape[2:])).reshape(*done.shape, -1)
    return jax.lax.scan(remember_next, (params.gru, memory), (x, done))[1]


def remember_next(carry: tuple[Any, Float[Array, "B H"]], seen: tuple[Any, Bool[Array, "B"]]) -> Any:
    """One step of the scan over time: the next memory, and the one after this observation."""
    cell, memory = carry
    x, done = seen
    memory = gru(cell, x, memory)
    return (cell, reset_where(done, memory)), memory


def head(layers: list[Layer], x: Float[Array, "B H"]) -> Float[Array, "B K"]:
    """Output of a head: one hidden layer and a linear output layer."""
    x = jax.nn.relu(x @ layers[0]["kernel"] + layers[0]["bias"])
    return x @ layers[1]["kernel"] + layers[1]["bias"]


def policy(params: RecurrentActorCritic, memory: Float[Array, "B H"]) -> Float[Array, "B P"]:
    """Parameters of the action distribution, given the memory after the observation."""
    out = head(params.actor, memory)
    return out if params.log_std is None else gaussian.parameters(out, params.log_std)


def value(params: RecurrentActorCritic, memory: Float[Array, "B H"]) -> Float[Array, "B"]:
    """The critic's estimate of the return, given the memory after the observation."""
    return head(params.critic, memory).squeeze(-1)


class State(NamedTuple):
    params: Network[RecurrentActorCritic]
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
        params = init_network(model_key, (env.observation_size, width, env.actions.size), dtype, log_std)
        normaliser = init_normaliser(math, config, env.observation_shape, dtype)
        memory, count = initial_memory(config.num_envs), jnp.zeros((), jnp.int32)
        return State(params, optimiser.init(params), count, normaliser, env.reset(env_key), memory, key, hyper)

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

        def objective(params: RecurrentActorCritic) -> tuple[Float[Array, ""], Metrics]:
            memory = remember_all(params, sequences.memory, sequences.obs, sequences.done).reshape(-1, width)
            found = policy(params, memory), value(params, memory)
            return ppo_loss(math, distribution, *found, rows, state.hyper, config)

        gradient, metrics = jax.grad(objective, has_aux=True)(state.params)
        step, adam = optimiser.update(gradient, state.adam, count=state.adam_count, hyper=state.hyper)
        params = optax.apply_updates(cast(Any, state.params), step)
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
