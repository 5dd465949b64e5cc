"""Recurrent PPO in Flax NNX: the state is one object, mutated in place; nnx.scan over time."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
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
from benchback.algorithms.normalising import init_normaliser, normalise_batch, normalise_obs, update_normaliser
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap, to_transitions
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import ppo_loss
from benchback.algorithms.ppo.recurrent.sequences import Rollout, Sequences, as_rows, make_sequences, reset_where, take
from benchback.backends import xla
from benchback.backends.nnx import agent
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, Step
from benchback.math import jax as math
from benchback.math.jax import gaussian


class GRU(nnx.Module):
    """nnx.GRUCell with the bias that it lacks: of the candidate, on the side of the memory."""

    def __init__(self, width: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        kinds: dict[str, Any] = {"kernel_init": gates, "dtype": dtype, "param_dtype": dtype, "rngs": rngs}
        self.input = nnx.Linear(width, 3 * width, **kinds)
        self.hidden = nnx.Linear(width, 3 * width, use_bias=False, **kinds)
        self.bias_n = nnx.Param(jnp.zeros(width, dtype))

    def __call__(self, x: Float[Array, "B H"], memory: Float[Array, "B H"]) -> Float[Array, "B H"]:
        """The memory after an input: gates r and z, candidate n, (1 - z) n + z memory."""
        input_r, input_z, input_n = jnp.split(self.input(x), 3, axis=1)
        hidden_r, hidden_z, hidden_n = jnp.split(self.hidden(memory), 3, axis=1)
        r = nnx.sigmoid(input_r + hidden_r)
        z = nnx.sigmoid(input_z + hidden_z)
        n = nnx.tanh(input_n + r * (hidden_n + self.bias_n[...]))
        return (1 - z) * n + z * memory


def gates(key: Key[Array, ""], shape: Any, dtype: Any, **_: Any) -> Float[Array, "H K"]:
    """Three orthogonal kernels side by side."""
    inputs, outputs = shape
    orthogonal = nnx.initializers.orthogonal()
    return jnp.hstack([orthogonal(each, (inputs, outputs // 3), dtype) for each in jax.random.split(key, 3)])


class RecurrentActorCritic(nnx.Module):
    """An encoder and a cell with memory, shared by the heads of actor and critic."""

    def __init__(self, sizes: tuple[int, int, int], dtype: jnp.dtype, log_std: Any, *, rngs: nnx.Rngs) -> None:
        inputs, width, num_actions = sizes

        def dense(fan_in: int, fan_out: int, scale: float) -> nnx.Linear:
            orthogonal = nnx.initializers.orthogonal(scale)
            return nnx.Linear(fan_in, fan_out, kernel_init=orthogonal, dtype=dtype, param_dtype=dtype, rngs=rngs)

        self.encoder = dense(inputs, width, 2**0.5)
        self.gru = GRU(width, dtype, rngs)
        self.actor = nnx.List([dense(width, width, 2.0), dense(width, num_actions, 0.01)])
        self.critic = nnx.List([dense(width, width, 2.0), dense(width, 1, 1.0)])
        # Log standard deviation of continuous actions.
        if log_std is not None:
            self.log_std = nnx.Param(jnp.full(num_actions, log_std, dtype))

    def encode(self, obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
        return nnx.relu(self.encoder(obs.reshape(len(obs), -1).astype(self.encoder.param_dtype)))

    def remember(self, memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
        return self.gru(self.encode(obs), memory)

    def remember_all(
        self, memory: Float[Array, "B H"], obs: Shaped[Array, "T B *O"], done: Bool[Array, "T B"]
    ) -> Float[Array, "T B H"]:
        x = self.encode(obs.reshape(-1, *obs.shape[2:])).reshape(*done.shape, -1)
        return remember_steps(self.gru, memory, x, done)[1]

    def policy(self, memory: Float[Array, "B H"]) -> Float[Array, "B P"]:
        out = self.actor[1](nnx.relu(self.actor[0](memory)))
        return gaussian.parameters(out, self.log_std[...]) if hasattr(self, "log_std") else out

    def value(self, memory: Float[Array, "B H"]) -> Float[Array, "B"]:
        return self.critic[1](nnx.relu(self.critic[0](memory))).squeeze(-1)


# Tree mode (graph=False) suffices without shared references, and costs half when not compiled.
@nnx.scan(graph=False, in_axes=(None, nnx.Carry, 0, 0), out_axes=(nnx.Carry, 0))
def remember_steps(cell: GRU, memory: Any, x: Any, done: Any) -> Any:
    """All steps: the next memory, and the one after every observation."""
    memory = cell(x, memory)
    return reset_where(done, memory), memory


@nnx.dataclass(eq=False)
class State(nnx.Pytree):
    """Training state; every field is a module, an optimiser or a variable."""

    model: Network[RecurrentActorCritic]
    adam: Optimiser[nnx.Optimizer]
    adam_count: Counter[nnx.Variable]
    normaliser: Data[nnx.Variable]
    env: Environment[nnx.Variable]
    memory: Memory[nnx.Variable]
    key: Randomness[nnx.Variable]
    hyper: HyperParameters[nnx.Variable]


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
        sizes = env.observation_size, width, env.actions.size
        model = RecurrentActorCritic(sizes, dtype, log_std, rngs=nnx.Rngs(params=model_key))
        adam, count = nnx.Optimizer(model, optimiser, wrt=nnx.Param), jnp.zeros((), jnp.int32)
        normaliser = init_normaliser(math, config, env.observation_shape, dtype)
        env_state, memory = env.reset(env_key), initial_memory(config.num_envs)
        return State(model, adam, *(nnx.Variable(x) for x in (count, normaliser, env_state, memory, key, hyper)))

    def rollout(state: State) -> tuple[State, Rollout]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = distribution.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        memory = state.memory.get_value()
        state, seen = rollout_steps(state, (env_noise, action_noise))
        return state, Rollout(finish_rollout(state, *seen), memory)

    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        env_state, normaliser = state.env.get_value(), state.normaliser.get_value()
        obs = env_state.obs
        memory = state.model.remember(state.memory.get_value(), normalise_obs(math, normaliser, obs))
        policy_params = state.model.policy(memory)
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        state.memory.set_value(reset_where(step.terminated | step.truncated, memory))
        return state, (obs, action, policy_params, memory, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(
        state: State, obs: Any, action: Any, policy_params: Any, memory: Float[Array, "T E H"], step: Step
    ) -> Transition:
        log_prob = distribution.log_prob(policy_params, action)
        value = state.model.value(memory.reshape(-1, width)).reshape(memory.shape[:2])
        given = state.model, state.normaliser.get_value(), memory, step.final_obs
        final_value = jax.lax.cond(any_member(step.truncated.any()), final_values, no_values, *given)
        return to_transitions(obs, action, log_prob, value, final_value, step)

    def final_values(model: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        rows = normalise_obs(math, normaliser, obs).reshape(-1, *env.observation_shape)
        return model.value(model.remember(memory.reshape(-1, width), rows)).reshape(memory.shape[:2])

    def no_values(model: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        return jnp.zeros(memory.shape[:2], dtype)

    def learn(state: State, sequences: Sequences) -> tuple[State, Metrics]:
        hyper, rows = state.hyper.get_value(), as_rows(sequences)

        def objective(model: RecurrentActorCritic) -> tuple[Float[Array, ""], Metrics]:
            memory = model.remember_all(sequences.memory, sequences.obs, sequences.done).reshape(-1, width)
            return ppo_loss(math, distribution, model.policy(memory), model.value(memory), rows, hyper, config)

        gradient, metrics = nnx.grad(objective, has_aux=True)(state.model)
        count = state.adam_count.get_value()
        state.adam.update(state.model, gradient, count=count, hyper=hyper)
        state.adam_count.set_value(count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    @nnx.scan(graph=False, in_axes=(nnx.Carry, None, 0), out_axes=(nnx.Carry, 0))
    def minibatch_steps(state: State, data: Sequences, index: Int[Array, "B"]) -> tuple[State, Metrics]:
        return learn(state, take(data, index))

    def update(state: State, batch: Rollout) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser.get_value(), state.hyper.get_value()
        obs = normalise_obs(math, normaliser, state.env.get_value().obs)
        last_value = state.model.value(state.model.remember(state.memory.get_value(), obs))
        seen = normalise_batch(math, normaliser, batch.steps)
        next_value, terminated = bootstrap(math, seen, last_value, config.truncation)
        advantage = math.gae(
            seen.reward, seen.value, next_value, terminated, seen.done, gamma=hyper.gamma, lam=hyper.gae_lambda
        )
        key, shuffle_key = jax.random.split(state.key.get_value())
        state.key.set_value(key)
        index = math.minibatch_indices(
            shuffle_key,
            batch_size=config.num_envs,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        state, losses = minibatch_steps(state, make_sequences(seen, batch.memory, advantage), index)
        state.normaliser.set_value(update_normaliser(math, normaliser, batch.steps, hyper.gamma))
        return state, jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch.steps)

    def act(
        state: State, memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]
    ) -> tuple[Float[Array, "B H"], Shaped[Array, "B *A"]]:
        memory = state.model.remember(memory, normalise_obs(math, state.normaliser.get_value(), obs))
        return memory, distribution.greedy(state.model.policy(memory))

    functions = {"init": init, "rollout": rollout, "update": update, "learn": learn, "act": act}
    return agent(State, config, env, initial_memory=initial_memory, **functions)
