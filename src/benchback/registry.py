"""Registry of algorithms, backends, compile modes and units, and of what plug-ins add to them.

Importing it imports no framework; `load` imports exactly one pair. A test compares it with the files on disk and
with the modes and units of each backend. The package of a plug-in has the same parts under names of its own: for a
backend a module `backend` and one per algorithm, for an algorithm a module `config` and one per backend.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal

from benchback import envs, errors
from benchback.agent import Agent, Backend, Gradients
from benchback.errors import InputError, install
from benchback.plugins import NETWORKS, Merged, absent
from benchback.plugins.towers import TOWERS

RECURRENT = ("gru",)
"""Networks with a memory; an algorithm that has them has an implementation for them in its package `recurrent`."""


@dataclass(frozen=True)
class Algorithm:
    """Properties of an algorithm that are needed without importing it."""

    title: str
    actions: tuple[Literal["discrete", "box"], ...]
    """Supported kinds of actions."""
    env: str
    """Default environment."""
    draws: int = 1
    """Random draws of an update, each from a key of its own: shuffles, rows of a replay, noise."""
    networks: tuple[str, ...] = ("mlp",)
    """Built-in networks that it can use; those of plug-ins say themselves which algorithms they are for."""


BUILT_IN_ALGORITHMS = {
    "ppo": Algorithm(
        "Proximal policy optimisation", ("discrete", "box"), "gymnax/CartPole-v1", networks=("mlp", *TOWERS, *RECURRENT)
    ),
    "vpg": Algorithm("Vanilla policy gradient", ("discrete", "box"), "gymnax/CartPole-v1", draws=0),
    "dqn": Algorithm("Deep Q-learning", ("discrete",), "gymnax/CartPole-v1", networks=("mlp", "cnn", "nature_cnn")),
    "td3": Algorithm("Twin delayed deep deterministic policy gradient", ("box",), "gymnax/Pendulum-v1", draws=2),
}
ALGORITHMS = Merged("algorithm", Algorithm, BUILT_IN_ALGORITHMS)
"""The built-in algorithms and those of plug-ins."""


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
BUILT_IN_BACKENDS = {
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
BACKENDS = Merged("backend", Spec, BUILT_IN_BACKENDS)
"""The built-in backends and those of plug-ins."""

NEEDED = {"jax": ("jax", "optax"), "torch": ("torch",)}
"""Family -> the packages that all its backends need; the extra of this package that installs them has its name."""
OTHER_EXTRAS = {"jaxlib": "jax", "chex": "jax", "imageio_ffmpeg": "play", "pygame": "play", "mujoco": "mujoco"}
OTHER_EXTRAS |= {name: name for name in ("tensorboard", "wandb", "mlflow", "optuna", "ray")}
OTHER_EXTRAS |= {"evosax": "discover"}
"""Further modules that are imported when they are needed -> their extras."""
DEFAULT_ALGORITHM, DEFAULT_BACKEND = "ppo", "linen"
REFERENCE_BACKEND = "purejax"
"""The backend with the least between the equations and JAX: others are compared with it where there is no oracle."""


def one_of_each_family() -> tuple[str, ...]:
    """The first backend of each array framework."""
    first = {spec.family: name for name, spec in reversed(BUILT_IN_BACKENDS.items())}
    return tuple(name for name in BUILT_IN_BACKENDS if name in first.values())


def add_algorithm(name: str, record: Algorithm, package: str) -> None:
    """Add an algorithm: `package` has a module `config` and one for each backend it is written in."""
    ALGORITHMS.add(name, record, package)


def add_backend(name: str, record: Spec, package: str) -> None:
    """Add a backend: `package` has a module `backend` and one for each algorithm that is written in it."""
    BACKENDS.add(name, record, package)


def add_network(name: str, modules: Mapping[str, str], package: str) -> None:
    """Add a kind of network: backend -> module that has it."""
    NETWORKS.add(name, modules, package)


SPELLINGS = {
    **{name: backend for backend, spec in reversed(BUILT_IN_BACKENDS.items()) for name in (spec.module, spec.package)},
    **{spec.title.lower().replace(" ", "_"): backend for backend, spec in BUILT_IN_BACKENDS.items()},
    "eqx": "equinox",
    "hk": "haiku",
    "pure_jax": "purejax",
    "reinforce": "vpg",
}
"""What people call a backend or an algorithm -> our name."""


def choose(kind: str, name: Any, known: Iterable[str]) -> str:
    """`name` if it is known; otherwise an InputError names the one that is meant, or all."""
    if isinstance(name, str) and name in known:  # entry points are read only for names that are not built in
        return name
    if isinstance(known, Merged) and isinstance(name, str) and name in known.broken:
        raise InputError(f"{kind}={name} cannot be used: {known.broken[name]}; repair or uninstall it")
    return errors.choose(kind, name, known, SPELLINGS)


def check_execution(backend: str, mode: str, unit: str) -> None:
    """Raise an InputError unless `backend` supports `mode` and `unit`."""
    spec = BACKENDS[choose("backend", backend, BACKENDS)]
    choose(f"mode of {backend}", mode, spec.modes)
    choose("unit", unit, BACKENDS["linen"].units)
    if unit not in spec.units:
        raise InputError(f"unit={unit} does not fit {backend}: no program of it spans iterations; use --unit phase")
    if mode == "eager" and unit == "chunk":
        raise InputError("mode=eager does not fit unit=chunk: eager has no programs to fuse; use --unit phase")


def check_gradients(backend: str, gradients: Gradients, network: str = "mlp") -> None:
    """Raise an InputError unless `backend` can compute the gradients of the network so."""
    if network in RECURRENT and gradients != "framework":
        raise InputError(f"gradients={gradients} does not fit network={network}; use --gradients framework")
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


def check_network(network: str, backend: str, algorithm: str) -> None:
    """Raise an InputError unless there is such a network, for the backend and for the algorithm."""
    choose("network", network, NETWORKS)
    if network not in NETWORKS.built_in and backend not in NETWORKS[network]:
        raise absent(network, backend)
    known = ALGORITHMS[algorithm].networks
    if network in NETWORKS.built_in and network not in known:
        apart = network.removeprefix("shared_")
        remedy = f"use --network {apart if apart in known else 'mlp'}"
        raise InputError(f"network={network} is not for {algorithm}, only for {', '.join(users_of(network))}; {remedy}")
    if network in RECURRENT and not _recurrent(algorithm, backend):
        raise InputError(
            f"network={network} has a memory, and {algorithm} in {backend} has no recurrent implementation; "
            "use a built-in backend, or --network mlp"
        )


def users_of(network: str) -> list[str]:
    """The algorithms that can use a built-in network; nothing of a plug-in's, which is known once it is imported."""
    return [name for name, known in ALGORITHMS.items() if network in known.networks]


def check_observations(network: str, env: str, shape: tuple[int, ...]) -> None:
    """Raise an InputError if the network is for images and observations of this shape are none, or too small a one."""
    check_image(network, env, shape[:2] if len(shape) == 3 else ())


def check_image(network: str, env: str, image: tuple[int, ...] | None) -> None:
    """Raise an InputError if the network is for images, and those of the environment are too small or there are none.

    `image` is their height and width, () for none; None, if that is not known yet, passes.
    """
    tower = TOWERS.get(network)
    if tower is None or image is None:
        return
    if not image:
        raise InputError(
            f"network={network} is for images [height, width, channels], and env={env} shows none; use --network mlp"
        )
    if min(image) < tower.smallest:
        other = next((name for name, x in TOWERS.items() if x.smallest <= min(image)), "mlp")
        raise InputError(
            f"network={network} is for images of at least {tower.smallest} x {tower.smallest}, and those of env={env} "
            f"are {' x '.join(map(str, image))}; use --network {other}"
        )


def backends_of(algorithm: str, network: str = "mlp") -> tuple[str, ...]:
    """The backends in which the algorithm is written and that have the network."""
    having = (name for name in BACKENDS if network in NETWORKS.built_in or name in NETWORKS[network])
    written = _recurrent if network in RECURRENT else _implementation
    return tuple(backend for backend in having if written(algorithm, backend))


def check_pair(algorithm: str, backend: str) -> None:
    """Raise an InputError unless the algorithm is written in the backend."""
    if not _implementation(algorithm, backend):
        written = ", ".join(backends_of(algorithm))
        raise InputError(f"algorithm={algorithm} is not written in backend={backend}; choose one of {written}")


def _implementation(algorithm: str, backend: str) -> str | None:
    """The module with the algorithm in that backend: in our tree, or in the package of the one that is a plug-in."""
    if algorithm in BUILT_IN_ALGORITHMS and backend in BUILT_IN_BACKENDS:
        return f"benchback.algorithms.{algorithm}.{backend}"
    own = [f"{ALGORITHMS.plugins[algorithm].package}.{backend}"] if algorithm not in BUILT_IN_ALGORITHMS else []
    own += [f"{BACKENDS.plugins[backend].package}.{algorithm}"] if backend not in BUILT_IN_BACKENDS else []
    return next(filter(_exists, own), None)


def _recurrent(algorithm: str, backend: str) -> str | None:
    """The module with the algorithm in that backend for networks with a memory: in a package beside the other."""
    package, _, name = (_implementation(algorithm, backend) or "").rpartition(".")
    found = f"{package}.recurrent.{name}"
    return found if package and _exists(found) else None


def _exists(module: str) -> bool:
    """Whether there is such a module; imports the package it is in, not the module."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # it would be in a module that is no package
        return False


def part(known: Merged, name: str, module: str) -> ModuleType | None:
    """The module of that name in the package of a plug-in; None if it has none."""
    whole = f"{known.plugins[name].package}.{module}"
    return _import(whole, known, name) if _exists(whole) else None


def module_of(algorithm: str, name: str) -> ModuleType:
    """A module of the algorithm that belongs to no backend, such as `config`."""
    choose("algorithm", algorithm, ALGORITHMS)
    built_in = algorithm in BUILT_IN_ALGORITHMS
    package = f"benchback.algorithms.{algorithm}" if built_in else ALGORITHMS.plugins[algorithm].package
    return _import(f"{package}.{name}", ALGORITHMS, algorithm)


def config(algorithm: str) -> type:
    """The algorithm's Config class."""
    return module_of(algorithm, "config").Config


def check_installed(backend: str) -> None:
    """Raise an InputError that names the extra unless the packages of `backend` are installed; imports nothing."""
    if missing := missing_of(choose("backend", backend, BACKENDS)):
        others = ", ".join(name for name in BUILT_IN_BACKENDS if not missing_of(name))
        remedy = f"{install(BACKENDS[backend].family)}; backends that are installed: {others or 'none'}"
        raise InputError(f"backend={backend} needs {missing}, which is not installed: {remedy}")


def missing_of(backend: str) -> str | None:
    """A package that `backend` needs and that is not installed; None if there is none."""
    spec = BACKENDS[backend]
    needed = dict.fromkeys((*NEEDED[spec.family], spec.module.partition(".")[0]))
    return next((module for module in needed if find_spec(module) is None), None)


def extra_of(module: str) -> str | None:
    """The extra of this package that installs a module; None for one that no extra has."""
    found = {spec.module: spec.family for spec in BUILT_IN_BACKENDS.values()}
    found |= {name: family for family, names in NEEDED.items() for name in names}
    found |= {name: extra for needed in envs.NEEDED.values() for name, extra in needed.items()}
    return (found | dict(envs.EXTRAS.values()) | OTHER_EXTRAS).get(module.partition(".")[0])


def load(algorithm: str, backend: str, gradients: Gradients = "framework") -> tuple[Callable[..., Agent], Backend]:
    """`make(config, env) -> Agent` of the algorithm in that backend, and the backend; imports only these."""
    choose("algorithm", algorithm, ALGORITHMS)
    choose("backend", backend, BACKENDS)
    check_pair(algorithm, backend)
    check_installed(backend)
    known, name = (ALGORITHMS, algorithm) if backend in BUILT_IN_BACKENDS else (BACKENDS, backend)
    implementation = _import(_implementation(algorithm, backend) or "", known, name)
    options = {} if gradients == "framework" else {"gradients": gradients}

    @wraps(implementation.make)
    def make(config: Any, env: Any) -> Agent:
        if getattr(config, "recurrent", False):
            return import_module(_recurrent(algorithm, backend) or "").make(config, env, **options)
        return implementation.make(config, env, **options)

    built_in = backend in BUILT_IN_BACKENDS
    module = f"benchback.backends.{backend}" if built_in else f"{BACKENDS.plugins[backend].package}.backend"
    return make, _import(module, BACKENDS, backend).backend


def _import(module: str, known: Merged, name: str) -> ModuleType:
    """The module; InputError names the plug-in if it cannot be imported."""
    try:
        return import_module(module)
    except ImportError as error:
        if name in known.built_in:
            raise
        whose = f"{known.kind}={name} of {known.origin(name)}"
        raise InputError(f"{whose} cannot be imported: {error}; install what it needs, or use another") from error


def execute(agent: Agent, backend: Backend, mode: str, unit: str, length: int = 1) -> Agent:
    """The agent with `unit` (a chunk has `length` iterations) and then compile mode `mode` applied."""
    return backend.modes[mode](backend.units[unit](agent, length))
