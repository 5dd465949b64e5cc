"""Environments by id, `suite/name`; importing this package imports no suite.

Two kinds of arrays: JAX environments serve the JAX family directly and PyTorch over DLPack; native
torch environments serve PyTorch alone, without JAX in the process. External environments live in Python
and serve every backend, with a transfer each way at every step.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

from benchback.envs.interface import Env
from benchback.envs.names import (
    BOX,
    CONTINUOUS,
    CONTINUOUS_PROBES,
    EXTERNAL,
    EXTRAS,
    GYMNAX,
    MUJOCO,
    NEEDED,
    PROBES,
    SUITES,
    TORCH,
)
from benchback.errors import InputError, install, near

__all__ = [
    "CONTINUOUS",
    "CONTINUOUS_PROBES",
    "EXTERNAL",
    "EXTRAS",
    "GYMNAX",
    "NEEDED",
    "PROBES",
    "SUITES",
    "TORCH",
    "Env",
    "check",
    "check_installed",
    "ids",
    "kind",
    "make",
    "make_external",
]


def ids() -> list[str]:
    """The ids of all named environments."""
    return [f"{suite}/{name}" for suite, names in SUITES.items() for name in names]


def kind(id: str) -> Literal["discrete", "box"]:
    """The kind of actions that environment `id` takes."""
    suite, _, name = id.partition("/")
    if suite in EXTERNAL and name not in SUITES[suite]:
        return _suite(suite).kind(name)
    return "box" if name in BOX.get(suite, ()) else "discrete"


def check(id: str) -> None:
    """Raise an InputError unless `id` exists; does not check that its package is installed."""
    suite, _, name = id.partition("/")
    if id in ids():
        return
    if not (suite in EXTERNAL and name):
        raise InputError(f"env={id[:100]} is unknown; {_meant(id)}`benchback list` shows all")
    check_installed(id)
    _suite(suite).check(name)


def _meant(id: str) -> str:
    """A question with the environment that is meant, if one is near; its suite may have been left out."""
    suite, slash, name = id.rpartition("/")
    known = [x for x in ids() if x.startswith(f"{suite}/")] or ids()
    names = list(dict.fromkeys(x.partition("/")[2] for x in known))
    found = (slash and near(id, known)) or near(name, names)
    whole = next((x for x in known if x in (found, f"gymnax/{found}") or x.endswith(f"/{found}")), None)
    return f"did you mean {whole}? " if whole else "" if slash else "an id is suite/name, e.g. gymnax/CartPole-v1; "


def check_installed(id: str) -> None:
    """Raise an InputError that names the extra unless the package of `id` is installed; imports nothing."""
    suite, _, name = id.partition("/")
    for package, extra in NEEDED.get(suite, {}).items():
        if find_spec(package) is None:
            raise InputError(f"env={id} needs {package}, which is not installed: {install(extra)}")
    module, extra = (
        ("mujoco", "mujoco") if (suite, name in MUJOCO) == ("gymnasium", True) else EXTRAS.get(suite, ("", ""))
    )
    if module and find_spec(module) is None:
        remedy = f"{install(extra)}, where there is a wheel for this platform"
        raise InputError(f"env={id} needs {module}, which is not installed: {remedy}")


def _suite(suite: str) -> Any:
    """The suite's module; InputError if its library cannot be imported."""
    try:
        return import_module(f"benchback.envs.{suite}")
    except ImportError as error:
        if suite not in EXTRAS:
            raise
        module, extra = EXTRAS[suite]
        remedy = f"{install(extra).replace('install', 'install --force-reinstall', 1)}, or choose another suite"
        raise InputError(f"suite {suite} cannot load {module} here ({error}): {remedy}") from None


def make(id: str, num_envs: int, framework: Literal["jax", "torch"]) -> Env:
    """`num_envs` copies of environment `id` whose arrays are of `framework`."""
    check(id)
    check_installed(id)
    suite, _, name = id.partition("/")
    if suite == "torch" and framework == "jax":
        raise InputError(f"env={id} is native to PyTorch; use backend pytorch, or gymnax/{name}")
    if suite in EXTERNAL:
        return import_module(f"benchback.envs.external.{framework}").serve(make_external(id, num_envs))
    env = _suite(suite).make(name, num_envs)
    if env.framework == "jax" and framework == "torch":
        return import_module("benchback.envs.bridge").to_torch(env)
    return env


def make_external(id: str, num_envs: int) -> Any:
    """`num_envs` copies of an external environment: NumPy arrays in, NumPy arrays out."""
    check(id)
    check_installed(id)
    suite, _, name = id.partition("/")
    copies = _suite(suite).make(name, num_envs)
    return import_module("benchback.envs.external").ExternalEnv(id, num_envs, copies)
