"""DQN the way PureJaxRL describes it, as a baseline: one program, a scan over steps.

Written from its description on today's gymnax, flax and optax: a ring of transitions, whether to learn and whether to
copy the target network decided by a `cond` on the agent's own step count, episode statistics kept by the environment.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState
from measuring import check_gradient_steps, main, time_twice  # pyright: ignore[reportMissingImports]
from purejax_style import LoggedEnv  # pyright: ignore[reportMissingImports]


class QNetwork(nn.Module):
    """A relu MLP with flax's default weights."""

    num_actions: int
    hidden_sizes: tuple[int, ...]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for size in self.hidden_sizes:
            x = nn.relu(nn.Dense(size)(x))
        return nn.Dense(self.num_actions)(x)


class Experience(NamedTuple):
    """Transitions; PureJaxRL's buffer keeps an observation and finds the next one in the row after it."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    next_obs: jax.Array


class Learner(TrainState):
    """Networks and step counts of one agent."""

    target: Any
    timestep: jax.Array
    updates: jax.Array


class Runner(NamedTuple):
    """Everything of one agent."""

    learner: Learner
    ring: Experience
    env: Any
    obs: jax.Array
    key: jax.Array


def make_parts(work: SimpleNamespace) -> tuple[Any, Any]:
    """key -> runner at the start of training; (runner, None) -> runner after one step of all environments, metrics."""
    env = LoggedEnv(work.env)
    network = QNetwork(env.num_actions, tuple(work.hidden_sizes))

    def start(key: jax.Array) -> Runner:
        key, model_key, reset_key = jax.random.split(key, 3)
        obs, env_state = jax.vmap(env.reset)(jax.random.split(reset_key, work.num_envs))
        params = network.init(model_key, obs)
        zero = jnp.int32(0)
        learner = Learner.create(
            apply_fn=network.apply,
            params=params,
            target=jax.tree.map(jnp.copy, params),
            tx=optax.adam(work.learning_rate),
            timestep=zero,
            updates=zero,
        )
        row = Experience(obs[0], zero, jnp.float32(0), jnp.bool_(False), obs[0])
        ring = jax.tree.map(lambda x: jnp.zeros((work.replay_capacity, *x.shape), x.dtype), row)
        return Runner(learner, ring, env_state, obs, key)

    def explore(learner: Learner, obs: jax.Array, key: jax.Array) -> jax.Array:
        random_key, choice_key = jax.random.split(key)
        spent = learner.timestep / (work.exploration_fraction * work.total_steps)
        epsilon = jnp.maximum(work.last_epsilon, work.first_epsilon + spent * (work.last_epsilon - work.first_epsilon))
        greedy = network.apply(learner.params, obs).argmax(-1)  # pyright: ignore[reportAttributeAccessIssue]
        drawn = jax.random.randint(choice_key, greedy.shape, 0, env.num_actions)
        return jnp.where(jax.random.uniform(random_key, greedy.shape) < epsilon, drawn, greedy)

    def learn(learner: Learner, ring: Experience, key: jax.Array) -> tuple[Learner, jax.Array]:
        filled = jnp.minimum(learner.timestep, work.replay_capacity)
        index = jax.random.randint(key, (work.minibatch_size,), 0, filled)
        batch = jax.tree.map(lambda x: x[index], ring)
        following = network.apply(learner.target, batch.next_obs).max(-1)  # pyright: ignore[reportAttributeAccessIssue]
        target = batch.reward + work.gamma * (1 - batch.done) * following

        def loss_of(params: Any) -> jax.Array:
            values: Any = network.apply(params, batch.obs)
            chosen = jnp.take_along_axis(values, batch.action[:, None], axis=-1).squeeze(-1)
            return jnp.mean((chosen - target) ** 2)

        loss, gradient = jax.value_and_grad(loss_of)(learner.params)
        learner = learner.apply_gradients(grads=gradient)
        return learner.replace(updates=learner.updates + 1), loss

    def update(runner: Runner, _: None) -> tuple[Runner, dict[str, jax.Array]]:
        learner, ring, env_state, obs, key = runner
        key, action_key, env_key, learn_key = jax.random.split(key, 4)
        action = explore(learner, obs, action_key)
        env_keys = jax.random.split(env_key, work.num_envs)
        next_obs, env_state, reward, done, info = jax.vmap(env.step)(env_keys, env_state, action)
        place = (learner.timestep + jnp.arange(work.num_envs)) % work.replay_capacity
        rows = Experience(obs, action, reward, done, next_obs)
        ring = jax.tree.map(lambda x, new: x.at[place].set(new), ring, rows)
        learner = learner.replace(timestep=learner.timestep + work.num_envs)
        learner, loss = jax.lax.cond(
            learner.timestep > work.learning_starts,
            lambda learner: learn(learner, ring, learn_key),
            lambda learner: (learner, jnp.float32(0)),
            learner,
        )
        learner = jax.lax.cond(
            learner.timestep % work.target_every == 0,
            lambda x: x.replace(target=optax.incremental_update(x.params, x.target, work.tau)),
            lambda x: x,
            learner,
        )
        metrics = {
            "timestep": learner.timestep,
            "updates": learner.updates,
            "loss": loss,
            "returns": info["returned_episode_returns"].mean(),
        }
        return Runner(learner, ring, env_state, next_obs, key), metrics

    return start, update


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train twice; the return is the mean of the episodes last ended in each environment."""
    config = {name: x for name, x in vars(work).items() if name != "seed"} | {"truncation": "terminal"}
    if work.double or work.num_updates != 1 or work.num_steps != 1:
        raise ValueError("PureJaxRL's DQN learns once in every step, without double Q-learning")
    start, update = make_parts(SimpleNamespace(**vars(work), total_steps=work.num_iterations * work.num_envs))
    program = jax.jit(lambda key: jax.lax.scan(update, start(key), None, work.num_iterations))

    def train(seed: int) -> Any:
        return jax.block_until_ready(program(jax.random.PRNGKey(seed)))

    times, (_, metrics) = time_twice(train, work)
    check_gradient_steps(int(metrics["updates"][-1]), work)
    alone = {"env_alone": lambda: LoggedEnv(work.env).alone_s(work.num_envs)}
    return times | {"episode_return": float(metrics["returns"][-1]), "config": config} | alone


if __name__ == "__main__":
    main(measure)
