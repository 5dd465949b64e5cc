"""PPO the way PureJaxRL describes it, as a baseline: one jitted program, a scan over updates.

Written from its description on today's gymnax, flax and optax: environments stepped by vmap with an automatic
reset, episode statistics stored for every step, jax.random.permutation of the whole batch in every epoch. Real-valued
actions are drawn from a Gaussian with a learnt standard deviation and clipped; brax's tasks are wrapped by brax itself,
which resets to the first state of each environment. Several agents are the same program under vmap.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState
from limits import jax_env_step_s  # pyright: ignore[reportMissingImports]
from measuring import main, time_twice  # pyright: ignore[reportMissingImports]

GAE_UNROLL = 16
EPISODE_LENGTH = 1000
"""Of brax's tasks."""


class Categorical(NamedTuple):
    """A distribution of discrete actions."""

    logits: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """An action."""
        return jax.random.categorical(key, self.logits)

    def log_prob(self, action: jax.Array) -> jax.Array:
        """log pi(a|s)."""
        return jnp.take_along_axis(nn.log_softmax(self.logits), action[..., None], axis=-1).squeeze(-1)

    def entropy(self) -> jax.Array:
        """-sum pi log pi."""
        return -(nn.softmax(self.logits) * nn.log_softmax(self.logits)).sum(-1)


class Gaussian(NamedTuple):
    """A distribution of real-valued actions with independent components."""

    mean: jax.Array
    log_std: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """An action, not clipped."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, action: jax.Array) -> jax.Array:
        """log pi(a|s)."""
        scaled = (action - self.mean) * jnp.exp(-self.log_std)
        return -(0.5 * scaled**2 + self.log_std + 0.5 * jnp.log(2 * jnp.pi)).sum(-1)

    def entropy(self) -> jax.Array:
        """Of all components."""
        return (self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum(-1)


class ActorCritic(nn.Module):
    """Separate tanh towers with orthogonal weights."""

    num_actions: int
    hidden_sizes: tuple[int, ...]
    real: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[Any, jax.Array]:
        out, value = self.tower(obs, self.num_actions, 0.01), self.tower(obs, 1, 1.0).squeeze(-1)
        if not self.real:
            return Categorical(out), value
        return Gaussian(out, self.param("log_std", nn.initializers.zeros, (self.num_actions,))), value

    def tower(self, x: jax.Array, outputs: int, head_scale: float) -> jax.Array:
        """Hidden layers and a head."""
        for size in self.hidden_sizes:
            x = nn.tanh(nn.Dense(size, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        return nn.Dense(outputs, kernel_init=nn.initializers.orthogonal(head_scale))(x)


class Logged(NamedTuple):
    """An environment's state with the statistics of its episodes."""

    env: Any
    episode_return: jax.Array
    episode_length: jax.Array
    returned_return: jax.Array
    returned_length: jax.Array
    timestep: jax.Array


class Transition(NamedTuple):
    """One step of all environments."""

    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array
    info: dict[str, jax.Array]


class Simulated:
    """A task of brax on its cheapest pipeline, with gymnax's methods; brax's wrappers end episodes and reset."""

    def __init__(self, name: str) -> None:
        from brax import envs

        self.env = envs.create(name, episode_length=EPISODE_LENGTH, backend="spring")
        self.num_actions = self.env.action_size

    def reset(self, key: jax.Array, params: None) -> tuple[jax.Array, Any]:
        """First observation and state."""
        state: Any = self.env.reset(key)
        return state.obs, state

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: None) -> tuple[Any, ...]:
        """Observation, state, reward, whether the episode ended or was cut off, nothing."""
        state = self.env.step(state, action.clip(-1, 1))
        cut = state.info["truncation"].astype(bool)
        return state.obs, state, state.reward, state.done.astype(bool) & ~cut, cut, {}


class LoggedEnv:
    """An environment of gymnax or brax with flat observations that keeps count of its episodes."""

    def __init__(self, name: str) -> None:
        self.real = name not in gymnax.registered_envs or name == "Pendulum-v1"
        made: Any = gymnax.make(name) if name in gymnax.registered_envs else (Simulated(name), None)
        self.env, self.params = made
        self.num_actions: int = self.env.num_actions

    def draw_action(self, key: jax.Array) -> jax.Array:
        """A random action."""
        if self.real:
            return jax.random.uniform(key, (self.num_actions,), minval=-1, maxval=1)
        return jax.random.randint(key, (), 0, self.num_actions)

    def alone_s(self, num_envs: int) -> float:
        """Seconds of a step of all environments by themselves."""

        def step(state: Any, action: jax.Array, key: jax.Array) -> tuple[Any, Any]:
            obs, state, reward, done, _ = jax.vmap(self.step)(jax.random.split(key, num_envs), state, action)
            return state, (obs, reward, done)

        return jax_env_step_s(
            lambda key: jax.vmap(self.reset)(jax.random.split(key, num_envs))[1],
            step,
            lambda key: jax.vmap(self.draw_action)(jax.random.split(key, num_envs)),
        )

    def reset(self, key: jax.Array) -> tuple[jax.Array, Logged]:
        """First observation and state."""
        obs, state = self.env.reset(key, self.params)
        return jnp.ravel(obs), Logged(state, jnp.float32(0), jnp.int32(0), jnp.float32(0), jnp.int32(0), jnp.int32(0))

    def step(self, key: jax.Array, state: Logged, action: jax.Array) -> tuple[Any, ...]:
        """Observation, state, reward, done and statistics; resets by itself."""
        obs, env, reward, terminated, truncated, _ = self.env.step(key, state.env, action, self.params)
        done = terminated | truncated
        total, length = state.episode_return + reward, state.episode_length + 1
        state = Logged(
            env=env,
            episode_return=total * (1 - done),
            episode_length=length * (1 - done),
            returned_return=jnp.where(done, total, state.returned_return),
            returned_length=jnp.where(done, length, state.returned_length),
            timestep=state.timestep + 1,
        )
        info = {
            "returned_episode_returns": state.returned_return,
            "returned_episode_lengths": state.returned_length,
            "timestep": state.timestep,
            "returned_episode": done,
        }
        return jnp.ravel(obs), state, jnp.asarray(reward, jnp.float32), done, info


def advantages_of(batch: Transition, last_value: jax.Array, work: SimpleNamespace) -> tuple[jax.Array, jax.Array]:
    """Generalised advantage estimates and value targets."""

    def step(carry: tuple[jax.Array, jax.Array], transition: Transition) -> tuple[Any, jax.Array]:
        advantage, next_value = carry
        not_done = 1 - transition.done
        delta = transition.reward + work.gamma * next_value * not_done - transition.value
        advantage = delta + work.gamma * work.gae_lambda * not_done * advantage
        return (advantage, transition.value), advantage

    start = jnp.zeros_like(last_value), last_value
    _, advantage = jax.lax.scan(step, start, batch, reverse=True, unroll=GAE_UNROLL)
    return advantage, advantage + batch.value


def loss_of(params: Any, apply: Any, minibatch: tuple[Any, ...], work: SimpleNamespace) -> tuple[jax.Array, Any]:
    """Clipped objective, clipped value loss and entropy bonus."""
    batch, advantage, target = minibatch
    policy, value = apply(params, batch.obs)
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
        train_state, env_state, obs, key = runner
        key, action_key, env_key = jax.random.split(key, 3)
        policy, value = train_state.apply_fn(train_state.params, obs)
        action = policy.sample(action_key)
        env_keys = jax.random.split(env_key, work.num_envs)
        next_obs, env_state, reward, done, info = jax.vmap(env.step)(env_keys, env_state, action)
        transition = Transition(done, action, value, reward, policy.log_prob(action), obs, info)
        return (train_state, env_state, next_obs, key), transition

    return lambda runner: jax.lax.scan(step, runner, None, work.num_steps)


def make_epoch(work: SimpleNamespace) -> Any:
    """(train state, data, key) -> the same after one pass over the shuffled data, losses."""
    batch_size = work.num_envs * work.num_steps

    def learn(train_state: TrainState, minibatch: tuple[Any, ...]) -> tuple[TrainState, Any]:
        value_and_gradient = jax.value_and_grad(loss_of, has_aux=True)
        losses, gradient = value_and_gradient(train_state.params, train_state.apply_fn, minibatch, work)
        return train_state.apply_gradients(grads=gradient), losses

    def epoch(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Any]:
        train_state, data, key = carry
        key, shuffle_key = jax.random.split(key)
        order = jax.random.permutation(shuffle_key, batch_size)
        flat = jax.tree.map(lambda x: x.reshape(batch_size, *x.shape[2:]), data)
        shuffled = jax.tree.map(lambda x: jnp.take(x, order, axis=0), flat)
        minibatches = jax.tree.map(lambda x: x.reshape(work.num_minibatches, -1, *x.shape[1:]), shuffled)
        train_state, losses = jax.lax.scan(learn, train_state, minibatches)
        return (train_state, data, key), losses

    return epoch


def make_parts(work: SimpleNamespace) -> tuple[Any, Any]:
    """key -> runner at the start of training; (runner, None) -> runner after one update, statistics of every step."""
    env = LoggedEnv(work.env)
    network = ActorCritic(env.num_actions, tuple(work.hidden_sizes), env.real)
    adam = optax.adam(work.learning_rate, eps=work.adam_epsilon)
    optimiser = optax.chain(optax.clip_by_global_norm(work.max_grad_norm), adam)
    collect, epoch = make_collect(env, work), make_epoch(work)

    def start(key: jax.Array) -> tuple[Any, ...]:
        key, model_key, reset_key = jax.random.split(key, 3)
        obs, env_state = jax.vmap(env.reset)(jax.random.split(reset_key, work.num_envs))
        params = network.init(model_key, obs)
        train_state = TrainState.create(apply_fn=network.apply, params=params, tx=optimiser)
        return train_state, env_state, obs, key

    def update(runner: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Any]:
        runner, batch = collect(runner)
        train_state, env_state, obs, key = runner
        _, last_value = train_state.apply_fn(train_state.params, obs)
        data = batch, *advantages_of(batch, last_value, work)
        (train_state, _, key), _ = jax.lax.scan(epoch, (train_state, data, key), None, work.num_epochs)
        return (train_state, env_state, obs, key), batch.info

    return start, update


def make_train(work: SimpleNamespace) -> Any:
    """key -> last runner state, statistics of every step."""
    start, update = make_parts(work)
    return lambda key: jax.lax.scan(update, start(key), None, work.num_iterations)


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train twice; the return is that of the episodes last ended in each environment."""
    agents = getattr(work, "agents", 1)
    train_one = make_train(work)
    program = jax.jit(train_one if agents == 1 else jax.vmap(train_one))

    def train(seed: int) -> Any:
        key = jax.random.PRNGKey(seed)
        return jax.block_until_ready(program(key if agents == 1 else jax.random.split(key, agents)))

    times, (_, info) = time_twice(train, work)
    episode_return = float(info["returned_episode_returns"][..., -1, -1, :].mean())
    config = {name: x for name, x in vars(work).items() if name != "seed"} | {"truncation": "terminal"}
    alone = {"env_alone": lambda: LoggedEnv(work.env).alone_s(agents * work.num_envs)}
    return times | {"episode_return": episode_return, "config": config} | alone


if __name__ == "__main__":
    main(measure)
