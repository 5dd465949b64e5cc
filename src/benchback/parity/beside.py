"""Torch beside the JAX family: the same state, the same noise and the same rows, so the same iterations.

Randomness is drawn before it is needed, by a handful of functions; here they return what JAX draws.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchback import registry
from benchback.agent import Agent, start
from benchback.math import jax as jax_math
from benchback.math import torch as torch_math
from benchback.math.jax.replay import draw_below
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.iterations import Course
from benchback.parity.subject import Subject


class Keyed(torch.Generator):
    """A generator whose state is a JAX key: what is drawn from it is what JAX draws from that key's parts."""

    key: jax.Array
    parts: list[jax.Array]

    def set_state(self, new_state: torch.Tensor) -> "Keyed":
        """Take over a JAX key, as raw data."""
        self.key = jax.random.wrap_key_data(jnp.asarray(new_state.numpy()))
        return self

    def get_state(self) -> torch.Tensor:
        """The JAX key as raw data."""
        return torch.tensor(np.array(jax.random.key_data(self.key)))

    def split(self, number: int) -> None:
        """Begin a phase with `number` draws, as the JAX family does; a phase that draws nothing leaves the key."""
        if number:
            self.key, *self.parts = jax.random.split(self.key, number + 1)

    def part(self) -> jax.Array:
        """The key of the next draw of the phase."""
        return self.parts.pop(0)


def beside_jax(subject: Subject, reference: str, course: Course) -> Iterator[Deviation]:
    """Deviations of torch's iterations from those of a JAX backend: actions, metrics and weights."""
    theirs = replace(subject, backend=reference, mode=registry.BACKENDS[reference].best, unit="phase")
    other = theirs.agent(course.config, course.kind)
    expected = start(other, course.seed, course.weights)
    generator, drawn_in_update = Keyed(), registry.ALGORITHMS[subject.algorithm].draws
    agent = _agent(subject, course, generator)
    state = start(agent, course.seed, other.export(expected))
    found = []
    for _ in range(course.number):
        with jax_draws():
            generator.split(2)
            state, batch = agent.rollout(state)
            action = subject.fetch(batch).action
            generator.split(drawn_in_update)
            state, metrics = agent.update(state, batch)
        expected, batch = other.rollout(expected)
        found.append(("action", deviation.unlike(action, theirs.fetch(batch).action)))
        expected, expected_metrics = other.update(expected, batch)
        found += deviation.of_metrics(subject.fetch(metrics), theirs.fetch(expected_metrics))
        found += deviation.of_weights(agent.export(state), deviation.trained(other.export(expected)))
    yield from worst((f"{quantity}/jax", off) for quantity, off in found)


def _agent(subject: Subject, course: Course, generator: Keyed) -> Agent:
    """The agent under test with this generator, in an environment that draws from it."""
    native = environment.make(course.config.num_envs, "jax", course.kind, subject.network)

    def draw(generator: Keyed, num_steps: int) -> list[tuple[Any, np.int32]]:
        noise = native.draw(generator.part(), num_steps)
        return [(noise, np.int32(t)) for t in range(num_steps)]

    env = environment.make(course.config.num_envs, "torch", course.kind, subject.network)
    env = replace(env, random=generator.manual_seed, draw=draw)
    make, _ = registry.load(subject.algorithm, subject.backend)
    agent = make(subject.configured(course.config), env)
    return subject.execute(agent, subject.mode, "phase", 1)


@contextmanager
def jax_draws() -> Iterator[None]:
    """Context in which torch's drawing functions, given a Keyed generator, return what those of JAX draw."""
    drawing: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch_math.categorical, "noise", _gumbel),
        (torch_math.gaussian, "noise", _normal),
        (torch_math, "minibatch_indices", _minibatch_indices),
        (torch_math, "sample_indices", _sample_indices),
        (torch_math, "epsilon_noise", _epsilon_noise),
        (torch_math, "acting_noise", _acting_noise),
    ]
    with ExitStack() as stack:
        for module, name, stand_in in drawing:
            stack.enter_context(patch.object(module, name, stand_in))
        yield


def _gumbel(generator: Keyed, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return _tensor(jax.random.gumbel(generator.part(), shape, _name(dtype)))


def _normal(generator: Keyed, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return _tensor(jax.random.normal(generator.part(), shape, _name(dtype)))


def _minibatch_indices(generator: Keyed, **sizes: int) -> torch.Tensor:
    return _rows(jax_math.minibatch_indices(generator.part(), **sizes))


def _sample_indices(generator: Keyed, replay: Any, inserted: int, shape: tuple[int, ...]) -> torch.Tensor:
    written = jnp.asarray(min(inserted, len(replay.data[0])))
    return _rows(draw_below(generator.part(), shape, written))


def _epsilon_noise(generator: Keyed, epsilon: torch.Tensor, shape: tuple[int, ...], num_actions: int) -> torch.Tensor:
    return _rows(jax_math.epsilon_noise(generator.part(), jnp.asarray(epsilon.numpy()), shape, num_actions))


def _acting_noise(
    generator: Keyed, shape: tuple[int, int, int], inserted: int, start_steps: int, dtype: torch.dtype
) -> torch_math.ActingNoise:
    drawn = jax_math.acting_noise(generator.part(), shape, jnp.asarray(inserted), start_steps, jnp.dtype(_name(dtype)))
    return torch_math.ActingNoise(*map(_tensor, drawn))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tensor(x: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(x))


def _rows(x: Any) -> torch.Tensor:
    """Indices, in torch's integer type."""
    return torch.tensor(np.asarray(x), dtype=torch.int64)
