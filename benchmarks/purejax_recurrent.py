"""Recurrent PPO the way PureJaxRL describes it, as a baseline: one jitted program, a scan over updates.

Written from its description on today's gymnax, flax and optax: a dense layer and a GRU of one width for both heads, its
memory reset where the previous step ended an episode, minibatches of whole sequences, environments shuffled in every
epoch, each gradient step replaying the network from the memory at the start of the rollout.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from measuring import main, time_twice  # pyright: ignore[reportMissingImports]
from purejax_style import Categorical, LoggedEnv, advantages_of  # pyright: ignore[reportMissingImports]


class Memory(nn.Module):
    """A GRU over time whose state is set to zero before a step that begins an episode."""

    width: int

    @nn.compact
    def __call__(self, carry: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, begins = given
        carry = jnp.where(begins[:, None], 0.0, carry)
        return nn.GRUCell(features=self.width)(carry, x)


class RecurrentActorCritic(nn.Module):
    """A dense layer and a GRU, then a hidden layer and an output for the policy and for the value."""

    num_actions: int
    width: int

    @nn.compact
    def __call__(self, memory: jax.Array, obs: jax.Array, begins: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
        x = nn.relu(self.dense(self.width, np.sqrt(2))(obs))
        over_time = nn.scan(Memory, variable_broadcast="params", split_rngs={"params": False})
        memory, x = over_time(self.width)(memory, (x, begins))
        logits = self.dense(self.num_actions, 0.01)(nn.relu(self.dense(self.width, 2.0)(x)))
        value = self.dense(1, 1.0)(nn.relu(self.dense(self.width, 2.0)(x)))
        return memory, Categorical(logits), value.squeeze(-1)

    def dense(self, size: int, scale: float) -> nn.Dense:
        """A layer with orthogonal weights."""
        return nn.Dense(size, kernel_init=nn.initializers.orthogonal(scale))


class Transition(NamedTuple):
    """One step of all environments."""

    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array
    begins: jax.Array
    info: dict[str, jax.Array]


def loss_of(params: Any, apply: Any, minibatch: tuple[Any, ...], work: SimpleNamespace) -> tuple[jax.Array, Any]:
    """Clipped objective, clipped value loss and entropy bonus of whole sequences."""
    memory, batch, advantage, target = minibatch
    _, policy, value = apply(params, memory[0], batch.obs, batch.begins)
    clipped = batch.value + (value - batch.value).clip(-work.clip, work.clip)
    value_loss = 0.5 * jnp.maximum((value - target) ** 2, (clipped - target) ** 2).mean()
    ratio = jnp.exp(policy.log_prob(batch.action) - batch.log_prob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    bounded = ratio.clip(1 - work.clip, 1 + work.clip)
    actor_loss = -jnp.minimum(ratio * advantage, bounded * advantage).mean()
    entropy = policy.entropy().mean()
    total = actor_loss + work.value_coefficient * value_loss - work.entropy_coefficient * entropy
    return total, (value_loss, actor_loss, entropy)


def make_collect(env: LoggedEnv, work: SimpleNamespace) -> Any:
    """runner -> runner, transitions of num_steps."""

    def step(runner: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Transition]:
        train_state, env_state, obs, begins, memory, key = runner
        key, action_key, env_key = jax.random.split(key, 3)
        memory, policy, value = train_state.apply_fn(train_state.params, memory, obs[None], begins[None])
        action = policy.sample(action_key)
        log_prob = policy.log_prob(action)
        env_keys = jax.random.split(env_key, work.num_envs)
        next_obs, env_state, reward, done, info = jax.vmap(env.step)(env_keys, env_state, action[0])
        seen = Transition(done, action[0], value[0], reward, log_prob[0], obs, begins, info)
        return (train_state, env_state, next_obs, done, memory, key), seen

    return lambda runner: jax.lax.scan(step, runner, None, work.num_steps)


def make_epoch(work: SimpleNamespace) -> Any:
    """(train state, data, key) -> the same after one pass over the shuffled environments, losses."""

    def learn(train_state: TrainState, minibatch: tuple[Any, ...]) -> tuple[TrainState, Any]:
        value_and_gradient = jax.value_and_grad(loss_of, has_aux=True)
        losses, gradient = value_and_gradient(train_state.params, train_state.apply_fn, minibatch, work)
        return train_state.apply_gradients(grads=gradient), losses

    def epoch(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Any]:
        train_state, data, key = carry
        key, shuffle_key = jax.random.split(key)
        order = jax.random.permutation(shuffle_key, work.num_envs)
        shuffled = jax.tree.map(lambda x: jnp.take(x, order, axis=1), data)

        def divided(x: jax.Array) -> jax.Array:
            return jnp.swapaxes(x.reshape(x.shape[0], work.num_minibatches, -1, *x.shape[2:]), 0, 1)

        train_state, losses = jax.lax.scan(learn, train_state, jax.tree.map(divided, shuffled))
        return (train_state, data, key), losses

    return epoch


def make_train(work: SimpleNamespace) -> Any:
    """key -> last runner state, statistics of every step."""
    env = LoggedEnv(work.env)
    (width,) = work.hidden_sizes
    network = RecurrentActorCritic(env.num_actions, width)
    adam = optax.adam(work.learning_rate, eps=work.adam_epsilon)
    optimiser = optax.chain(optax.clip_by_global_norm(work.max_grad_norm), adam)
    collect, epoch = make_collect(env, work), make_epoch(work)

    def start(key: jax.Array) -> tuple[Any, ...]:
        key, model_key, reset_key = jax.random.split(key, 3)
        obs, env_state = jax.vmap(env.reset)(jax.random.split(reset_key, work.num_envs))
        memory, begins = jnp.zeros((work.num_envs, width)), jnp.zeros(work.num_envs, bool)
        params = network.init(model_key, memory, obs[None], begins[None])
        train_state = TrainState.create(apply_fn=network.apply, params=params, tx=optimiser)
        return train_state, env_state, obs, begins, memory, key

    def update(runner: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Any]:
        first_memory = runner[4]
        runner, batch = collect(runner)
        train_state, env_state, obs, begins, memory, key = runner
        _, _, last_value = train_state.apply_fn(train_state.params, memory, obs[None], begins[None])
        data = first_memory[None], batch, *advantages_of(batch, last_value[0], work)
        (train_state, _, key), _ = jax.lax.scan(epoch, (train_state, data, key), None, work.num_epochs)
        return (train_state, env_state, obs, begins, memory, key), batch.info

    return lambda key: jax.lax.scan(update, start(key), None, work.num_iterations)


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train twice; the return is that of the episodes last ended in each environment."""
    if work.network != "gru":
        raise ValueError(f"this is recurrent PPO with a GRU, not network={work.network}")
    program = jax.jit(make_train(work))

    def train(seed: int) -> Any:
        return jax.block_until_ready(program(jax.random.PRNGKey(seed)))

    times, (_, info) = time_twice(train, work)
    episode_return = float(info["returned_episode_returns"][-1, -1].mean())
    config = {name: x for name, x in vars(work).items() if name != "seed"} | {"truncation": "terminal"}
    alone = {"env_alone": lambda: LoggedEnv(work.env).alone_s(work.num_envs)}
    return times | {"episode_return": episode_return, "config": config} | alone


if __name__ == "__main__":
    main(measure)
