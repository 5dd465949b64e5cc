"""Registry of algorithms, backends, compile modes and units.

Importing it imports no framework; `load` imports exactly one pair. A test compares it with the files on disk and
with the modes and units of each backend.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, Literal

from benchback.agent import Agent, Backend, Gradients
from benchback.errors import InputError


@dataclass(frozen=True)
class Algorithm:
    """Properties of an algorithm that are needed without importing it."""

    title: str
    actions: tuple[Literal["discrete", "box"], ...]
    """Supported kinds of actions."""
    env: str
    """Default environment."""


ALGORITHMS = {
    "ppo": Algorithm("Proximal policy optimisation", ("discrete", "box"), "gymnax/CartPole-v1"),
    "vpg": Algorithm("Vanilla policy gradient", ("discrete", "box"), "gymnax/CartPole-v1"),
    "dqn": Algorithm("Deep Q-learning", ("discrete",), "gymnax/CartPole-v1"),
    "td3": Algorithm("Twin delayed deep deterministic policy gradient", ("box",), "gymnax/Pendulum-v1"),
}


@dataclass(frozen=True)
class Spec:
    """Properties of a backend that are needed without importing it."""

    title: str
    family: Literal["jax", "torch"]
    modes: tuple[str, ...]
    best: str
    """Default compile mode."""
    module: str
    """Module that users import; the code-size analysis counts the names used from it."""
    package: str
    """Distribution to install; its version is part of the machine fingerprint."""
    colour: str
    """Colour in charts: Okabe-Ito palette, contrast at least 3:1 against white and near-black."""
    units: tuple[str, ...] = ("phase", "iteration", "chunk")
    gradients: tuple[Gradients, ...] = ("framework", "reordered")
    populations: tuple[str, ...] = ("none", "jit")
    """Modes in which many agents can be one program; none where it is empty."""


JIT = ("eager", "none", "jit")
BACKENDS = {
    "linen": Spec("Flax Linen", "jax", JIT, "jit", "flax", "flax", "#0072b2"),
    "nnx": Spec(
        "Flax NNX",
        "jax",
        ("eager", "none", "jit", "cached_partial", "jit_partial", "split"),
        "split",
        "flax",
        "flax",
        "#3a9fd6",
        populations=("none", "split"),
    ),
    "equinox": Spec(
        "Equinox",
        "jax",
        ("eager", "none", "filter_jit", "flatten"),
        "flatten",
        "equinox",
        "equinox",
        "#009e73",
        populations=("none", "filter_jit", "flatten"),
    ),
    "haiku": Spec("Haiku", "jax", JIT, "jit", "haiku", "dm-haiku", "#c78c00"),
    "purejax": Spec("plain JAX", "jax", JIT, "jit", "jax", "jax", "#c2699c"),
    "pytorch": Spec(
        "PyTorch",
        "torch",
        ("none", "env_jit", "script", "compile", "cudagraphs"),
        "compile",
        "torch",
        "torch",
        "#d55e00",
        units=("phase", "iteration"),
        gradients=("framework",),
        populations=(),
    ),
}

DEFAULT_ALGORITHM, DEFAULT_BACKEND = "ppo", "linen"


def one_of_each_family() -> tuple[str, ...]:
    """The first backend of each array framework."""
    first = {spec.family: name for name, spec in reversed(BACKENDS.items())}
    return tuple(name for name in BACKENDS if name in first.values())


def choose(kind: str, name: str, known: Iterable[str]) -> str:
    """`name` if it is known; otherwise an InputError suggests the nearest known name."""
    known = list(known)
    if name in known:
        return name
    raise InputError(f"{kind}={name} is unknown; did you mean {nearest(name, known)}? Known: {', '.join(known)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name most similar to `name`."""
    return get_close_matches(name, list(known), n=1, cutoff=0)[0]


def check_execution(backend: str, mode: str, unit: str) -> None:
    """Raise an InputError unless `backend` supports `mode` and `unit`."""
    spec = BACKENDS[choose("backend", backend, BACKENDS)]
    choose(f"mode of {backend}", mode, spec.modes)
    choose("unit", unit, BACKENDS["linen"].units)
    if unit not in spec.units:
        raise InputError(f"unit={unit} does not fit {backend}: no program of it spans iterations; use --unit phase")
    if mode == "eager" and unit == "chunk":
        raise InputError("mode=eager does not fit unit=chunk: eager has no programs to fuse; use --unit phase")


def check_gradients(backend: str, gradients: Gradients) -> None:
    """Raise an InputError unless `backend` can compute its gradients so."""
    if gradients not in BACKENDS[backend].gradients:
        raise InputError(
            f"gradients={gradients} does not fit {backend}: only products that XLA compiles are reordered; "
            "use --gradients framework"
        )


def check_population(backend: str, mode: str) -> None:
    """Raise an InputError unless agents of `backend` in this mode can be members of one program."""
    able = BACKENDS[choose("backend", backend, BACKENDS)].populations
    if not able:
        raise InputError(
            f"backend={backend} trains one agent per program; use members 1, or a backend of the JAX family"
        )
    if mode not in able:
        raise InputError(
            f"mode={mode} does not fit several members: they are functions of arrays; use {' or '.join(able)}"
        )


def stored_gradients(run: Mapping[str, Any]) -> Gradients:
    """How a stored run computes its gradients; runs from before there was a choice reordered all that they could."""
    spec = BACKENDS.get(run["backend"])
    return run.get("gradients") or (spec.gradients[-1] if spec else "framework")


def check_actions(algorithm: str, env: str, kind: str) -> None:
    """Raise an InputError unless the algorithm supports actions of that kind."""
    known = ALGORITHMS[algorithm]
    if kind not in known.actions:
        takes, chooses = ("real-valued", "discrete") if kind == "box" else ("discrete", "real-valued")
        raise InputError(
            f"env={env} takes {takes} actions, and {algorithm} chooses {chooses} ones; "
            f"choose another environment, e.g. {known.env}"
        )


def config(algorithm: str) -> type:
    """The algorithm's Config class."""
    choose("algorithm", algorithm, ALGORITHMS)
    return import_module(f"benchback.algorithms.{algorithm}.config").Config


def load(algorithm: str, backend: str, gradients: Gradients = "framework") -> tuple[Callable[..., Agent], Backend]:
    """`make(config, env) -> Agent` of the algorithm in that backend, and the backend; imports only these."""
    choose("algorithm", algorithm, ALGORITHMS)
    choose("backend", backend, BACKENDS)
    implementation = import_module(f"benchback.algorithms.{algorithm}.{backend}")
    make = implementation.make if gradients == "framework" else partial(implementation.make, gradients=gradients)
    return make, import_module(f"benchback.backends.{backend}").backend


def execute(agent: Agent, backend: Backend, mode: str, unit: str, length: int = 1) -> Agent:
    """The agent with `unit` (a chunk has `length` iterations) and then compile mode `mode` applied."""
    return backend.modes[mode](backend.units[unit](agent, length))
