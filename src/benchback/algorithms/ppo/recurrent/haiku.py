"""Recurrent PPO in Haiku: functions with modules inside, transformed; hk.scan over time."""

from typing import Any, NamedTuple

import haiku as hk
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
from benchback.backends.haiku import LAYOUT, with_log_std
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, EnvState, Step
from benchback.math import jax as math
from benchback.math.jax import gaussian

ORTHOGONAL = hk.initializers.Orthogonal


class GRU(hk.Module):
    """A cell in which the reset gate acts after the product; in hk.GRU it acts before, and z and 1 - z are swapped."""

    def __init__(self, width: int):
        super().__init__("gru")
        self.width = width

    def __call__(self, x: Float[Array, "B H"], memory: Float[Array, "B H"]) -> Float[Array, "B H"]:
        """The memory after an input: gates r and z, candidate n, (1 - z) n + z memory."""
        from_input = hk.Linear(3 * self.width, w_init=gates, name="input")(x)
        from_memory = hk.Linear(3 * self.width, with_bias=False, w_init=gates, name="hidden")(memory)
        input_r, input_z, input_n = jnp.split(from_input, 3, axis=1)
        hidden_r, hidden_z, hidden_n = jnp.split(from_memory, 3, axis=1)
        r = jax.nn.sigmoid(input_r + hidden_r)
        z = jax.nn.sigmoid(input_z + hidden_z)
        n = jnp.tanh(input_n + r * (hidden_n + hk.get_parameter("bias_n", (self.width,), x.dtype, jnp.zeros)))
        return (1 - z) * n + z * memory


def gates(shape: Any, dtype: Any) -> Float[Array, "H K"]:
    """Three orthogonal kernels side by side."""
    inputs, outputs = shape
    return jnp.concatenate([ORTHOGONAL()((inputs, outputs // 3), dtype) for _ in range(3)], axis=1)


class Head(hk.Module):
    """One hidden layer and a linear output layer of its own scale."""

    def __init__(self, width: int, outputs: int, scale: float, name: str):
        super().__init__(name)
        self.width, self.outputs, self.scale = width, outputs, scale

    def __call__(self, x: Float[Array, "B H"]) -> Float[Array, "B K"]:
        x = jax.nn.relu(hk.Linear(self.width, w_init=ORTHOGONAL(2.0), name="layer_0")(x))
        return hk.Linear(self.outputs, w_init=ORTHOGONAL(self.scale), name="layer_1")(x)


class RecurrentActorCritic(NamedTuple):
    """An encoder and a cell with memory, shared by the heads of actor and critic, as functions of the parameters."""

    init: Any
    remember: Any
    remember_all: Any
    policy: Any
    value: Any


def actor_critic(width: int, num_actions: int, dtype: jnp.dtype, *, continuous: bool) -> RecurrentActorCritic:
    """The transformed networks; for continuous actions with a state-independent log standard deviation."""

    def encode(obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
        # Haiku creates parameters in the type of the input.
        x = obs.reshape(len(obs), -1).astype(dtype)
        return jax.nn.relu(hk.Linear(width, w_init=ORTHOGONAL(2**0.5), name="encoder")(x))

    def remember(memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]) -> Float[Array, "B H"]:
        return GRU(width)(encode(obs), memory)

    def remember_all(
        memory: Float[Array, "B H"], obs: Shaped[Array, "T B *O"], done: Bool[Array, "T B"]
    ) -> Float[Array, "T B H"]:
        x, cell = encode(obs.reshape(-1, *obs.shape[2:])).reshape(*done.shape, -1), GRU(width)

        def remember_next(memory: Float[Array, "B H"], seen: tuple[Any, Bool[Array, "B"]]) -> Any:
            x, done = seen
            memory = cell(x, memory)
            return reset_where(done, memory), memory

        return hk.scan(remember_next, memory, (x, done))[1]

    def policy(memory: Float[Array, "B H"]) -> Float[Array, "B P"]:
        out = Head(width, num_actions, 0.01, "actor")(memory)
        if not continuous:
            return out
        return gaussian.parameters(out, hk.get_parameter("log_std", (num_actions,), dtype, jnp.zeros))

    def value(memory: Float[Array, "B H"]) -> Float[Array, "B"]:
        return Head(width, 1, 1.0, "critic")(memory).squeeze(-1)

    def forward(memory: Float[Array, "B H"], obs: Shaped[Array, "B *O"]) -> Any:
        memory = remember(memory, obs)
        return policy(memory), value(memory)

    whole, *parts = (hk.without_apply_rng(hk.transform(f)) for f in (forward, remember, remember_all, policy, value))
    return RecurrentActorCritic(whole.init, *(part.apply for part in parts))


class State(NamedTuple):
    params: Network[hk.Params]
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
    model = actor_critic(width, env.actions.size, dtype, continuous=env.actions.kind == "box")
    optimiser = math.adam(
        anneal=config.anneal, steps_per_iteration=config.updates_per_iteration, num_iterations=config.num_iterations
    )

    def initial_memory(num_envs: int) -> Float[Array, "E H"]:
        return jnp.zeros((num_envs, width), dtype)

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        params = model.init(model_key, initial_memory(1), jnp.zeros((1, *env.observation_shape)))
        params = with_log_std(params, hyper.initial_log_std)
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
        memory = model.remember(state.params, state.memory, normalise_obs(math, state.normaliser, obs))
        policy_params = model.policy(state.params, memory)
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(state.env, action, env_noise)
        state = state._replace(env=env_state, memory=reset_where(step.terminated | step.truncated, memory))
        return state, (obs, action, policy_params, memory, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(
        state: State, obs: Any, action: Any, policy_params: Any, memory: Float[Array, "T E H"], step: Step
    ) -> Rollout:
        log_prob = distribution.log_prob(policy_params, action)
        found = model.value(state.params, memory.reshape(-1, width)).reshape(memory.shape[:2])
        given = state.params, state.normaliser, memory, step.final_obs
        final_value = jax.lax.cond(any_member(step.truncated.any()), final_values, no_values, *given)
        return Rollout(to_transitions(obs, action, log_prob, found, final_value, step), state.memory)

    def final_values(params: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        rows = normalise_obs(math, normaliser, obs).reshape(-1, *env.observation_shape)
        return model.value(params, model.remember(params, memory.reshape(-1, width), rows)).reshape(memory.shape[:2])

    def no_values(params: Any, normaliser: Any, memory: Float[Array, "T E H"], obs: Any) -> Float[Array, "T E"]:
        return jnp.zeros(memory.shape[:2], dtype)

    def learn(state: State, sequences: Sequences) -> tuple[State, Metrics]:
        rows = as_rows(sequences)

        def objective(params: hk.Params) -> tuple[Float[Array, ""], Metrics]:
            memory = model.remember_all(params, sequences.memory, sequences.obs, sequences.done).reshape(-1, width)
            found = model.policy(params, memory), model.value(params, memory)
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
        memory = model.remember(state.params, state.memory, normalise_obs(math, normaliser, state.env.obs))
        seen = normalise_batch(math, normaliser, batch.steps)
        next_value, terminated = bootstrap(math, seen, model.value(state.params, memory), config.truncation)
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
        memory = model.remember(state.params, memory, normalise_obs(math, state.normaliser, obs))
        return memory, distribution.greedy(model.policy(state.params, memory))

    functions = {"init": init, "rollout": rollout, "update": update, "learn": learn, "act": act}
    return xla.agent(State, LAYOUT, config, env, initial_memory=initial_memory, **functions)
