"""Environment for parity tests: within a few steps its episodes terminate, are truncated, or both.

Its transitions are a fixed function of observation and action, so that the final observation of an
episode, which rollouts do not store, can be computed from what they store. Convolutional networks see images of bytes.
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from benchback.envs.interface import Box, Discrete, Env, EnvState, Step

OBSERVATION_SIZE = 4
NUM_ACTIONS = 3
ACTION_SIZE = 2
TIME_LIMIT = 3


BOX = Box((-1.5,) * ACTION_SIZE, (1.5,) * ACTION_SIZE)
SMALL_IMAGE, LARGE_IMAGE = (5, 4, 3), (44, 36, 2)
IMAGES: Mapping[str, tuple[int, ...]] = {
    "cnn": SMALL_IMAGE,
    "shared_cnn": SMALL_IMAGE,
    "nature_cnn": LARGE_IMAGE,
    "shared_nature_cnn": LARGE_IMAGE,
}
"""Network -> shape of the images it is tested with: no two sides are alike, and more than a pixel is left of them."""
LARGE = tuple(network for network, image in IMAGES.items() if image == LARGE_IMAGE)
"""Networks with so many weights and products that they are tested with fewer rows."""


def observation_shape(network: str) -> tuple[int, ...]:
    """The shape of an observation for this network."""
    return IMAGES.get(network, (OBSERVATION_SIZE,))


def observations(random: Any, leading: tuple[int, ...], network: str = "mlp") -> Any:
    """Observations `[*leading, *O]` of NumPy: images of bytes, or vectors of normal numbers."""
    shape = *leading, *observation_shape(network)
    return random.integers(256, size=shape, dtype="uint8") if network in IMAGES else random.normal(size=shape)


def successor(numpy: ModuleType, obs: Any, action: Any) -> Any:
    """The observation that follows, in the arrays of `numpy` (NumPy itself or `jax.numpy`)."""
    if obs.ndim - action.ndim > 1:
        return _next_image(numpy, obs, action)
    if action.ndim < obs.ndim:
        return 0.5 * numpy.roll(obs, 1, -1) + 0.5 * (action[..., None] - 1)
    push = numpy.clip(action, BOX.low[0], BOX.high[0]).sum(-1, keepdims=True)
    return 0.5 * numpy.roll(obs, 1, -1) + 0.5 * push


def _next_image(numpy: ModuleType, obs: Any, action: Any) -> Any:
    """The image one pixel further, and brighter by an amount that depends on the action; bytes wrap around."""
    choice = action if obs.ndim - action.ndim == 3 else action.sum(-1) > 0
    return (numpy.roll(obs, 1, -2) + (37 * choice + 11)[..., None, None, None]).astype("int32").astype("uint8")


def next_obs(batch: Any, noise: Any) -> Any:
    """The observation after each step of a rollout in NumPy arrays, `[T, E, *O]`: `noise` where an episode ended."""
    import numpy

    following = successor(numpy, batch.obs.astype(float), batch.action.astype(float))
    done = batch.terminated | batch.truncated
    return numpy.where(done.reshape(*done.shape, *(1 for _ in following.shape[2:])), noise, following)


def first_obs(key: Any, leading: tuple[int, ...], network: str) -> Any:
    """First observations of episodes, drawn from a JAX key."""
    import jax

    shape = *leading, *observation_shape(network)
    return jax.random.bits(key, shape, "uint8") if network in IMAGES else jax.random.normal(key, shape, float)


def make(
    num_envs: int,
    framework: Literal["jax", "torch"],
    kind: Literal["discrete", "box"] = "discrete",
    network: str = "mlp",
) -> Env:
    """`num_envs` copies whose arrays are of `framework`, whose actions are of that kind, and which suit the network."""
    env = _make(num_envs, Discrete(NUM_ACTIONS) if kind == "discrete" else BOX, network)
    return env if framework == "jax" else import_module("benchback.envs.bridge").to_torch(env)


def _make(num_envs: int, actions: Discrete | Box, network: str) -> Env:
    import jax
    import jax.numpy as jnp

    def numbers(obs: Any) -> Any:
        return obs.reshape(num_envs, -1).astype(float) / 64 - 2 if network in IMAGES else obs

    def reset(key: Any) -> EnvState:
        return EnvState((), draw(key, 1)[0], jnp.zeros(num_envs, float), jnp.zeros(num_envs, jnp.int32))

    def draw(key: Any, num_steps: int) -> Any:
        return first_obs(key, (num_steps, num_envs), network)

    def step(state: EnvState, action: Any, noise: Any) -> tuple[EnvState, Step]:
        final_obs = successor(jnp, state.obs, action).astype(state.obs.dtype)
        reward = numbers(final_obs)[:, 1]
        episode_length = state.episode_length + 1
        episode_return = state.episode_return + reward
        terminated = numbers(final_obs)[:, 0] > 0.5
        truncated = episode_length >= TIME_LIMIT
        done = terminated | truncated
        obs = jax.vmap(jnp.where)(done, noise, final_obs)
        outcome = Step(obs, reward, terminated, truncated, final_obs, episode_return, episode_length)
        resumed = jnp.where(done, 0, episode_return), jnp.where(done, 0, episode_length)
        return EnvState(state.inner, obs, *resumed), outcome

    return Env(
        id="parity",
        framework="jax",
        num_envs=num_envs,
        observation_shape=observation_shape(network),
        actions=actions,
        random=jax.random.key,
        reset=reset,
        draw=draw,
        step=step,
    )
