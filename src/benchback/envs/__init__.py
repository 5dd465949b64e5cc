"""Environments by id, `suite/name`, with wrappers after it; importing this package imports no suite.

Two kinds of arrays: JAX environments serve the JAX family directly and PyTorch over DLPack; native
torch environments serve PyTorch alone, without JAX in the process. External environments live in Python
and serve every backend, with a transfer each way at every step. A user's own environment is any of these (`own.py`).
"""

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from benchback.envs import wrappers
from benchback.envs.ids import OWN, EnvId, split
from benchback.envs.interface import Env
from benchback.envs.names import (
    BOX,
    CONTINUOUS,
    CONTINUOUS_PROBES,
    EXTERNAL,
    EXTRAS,
    GYMNAX,
    IMAGES,
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
    "About",
    "Env",
    "about",
    "check",
    "check_installed",
    "ids",
    "kind",
    "make",
    "make_external",
    "plugins",
    "split",
]


def ids() -> list[str]:
    """The ids of all named environments."""
    return [f"{suite}/{name}" for suite, names in SUITES.items() for name in names]


def plugins() -> dict[str, str]:
    """The ids of environments of installed packages -> what each names, e.g. `my_package.worlds:make`."""
    imports = import_module("benchback.plugins.imports")
    found = imports.installed(import_module("benchback.envs.own").GROUP)
    return {f"plugin/{name}": entry.value for name, entry in sorted(found.items())}


class About(NamedTuple):
    """What must be known of an environment before it is made."""

    kind: Literal["discrete", "box"]
    """The kind of actions that it takes."""
    where: Literal["jax", "torch", "python"]
    """What computes it: a JAX program, torch, or Python."""
    notes: tuple[str, ...] = ()
    """What a user should know of how its spaces were changed."""
    image: tuple[int, ...] | None = None
    """Height and width of the images that it shows; () if it shows none, None if that is known once it is made."""


def about(id: str) -> About:
    """What is known of environment `id`; one that is in no list has to be made to find out."""
    suite, name, _ = parts = split(id)
    if suite in OWN:
        return About(*_suite("own").facts(_bare(parts)))
    if suite in EXTERNAL and name not in SUITES[suite]:
        module = _suite(suite)
        return About(module.kind(name), "python", module.notes(name) if hasattr(module, "notes") else ())
    where = "python" if suite in EXTERNAL else "torch" if suite == "torch" else "jax"
    return About("box" if name in BOX.get(suite, ()) else "discrete", where, image=_image(parts))


def _image(parts: EnvId) -> tuple[int, ...] | None:
    """Height and width of the images that an environment of the lists shows, with its wrappers."""
    if any(text.startswith("observe=") for text in parts.wrappers):
        return ()
    return None if parts.suite == "navix" else IMAGES.get(parts.name, ())


def kind(id: str) -> Literal["discrete", "box"]:
    """The kind of actions that environment `id` takes."""
    return about(id).kind


def check(id: str) -> None:
    """Raise an InputError unless `id` exists; does not check that its package is installed."""
    suite, name, texts = parts = split(id)
    if parts.base in ids():
        pass
    elif suite in OWN and name:
        _suite("own").check(_bare(parts))
    elif suite in EXTERNAL and name:
        check_installed(id)
        _suite(suite).check(name)
    else:
        raise InputError(
            f"env={parts.base.removesuffix('/')[:100]} is unknown; {_meant(parts)}`benchback list` shows all"
        )
    wrappers.parse(texts, id)


def _bare(parts: EnvId) -> EnvId:
    return parts._replace(wrappers=())


def _meant(parts: EnvId) -> str:
    """A question with the environment that is meant, if one is near; its suite may have been left out."""
    if ":" in parts.suite:
        return f"did you mean gymnasium/{parts.suite}? "
    id = parts.base.removesuffix("/")
    suite, slash, name = id.rpartition("/")
    known = [x for x in ids() if x.startswith(f"{suite}/")] or ids()
    names = list(dict.fromkeys(x.partition("/")[2] for x in known))
    found = (slash and near(id, known)) or near(name, names)
    whole = next((x for x in known if x in (found, f"gymnax/{found}") or x.endswith(f"/{found}")), None)
    return f"did you mean {whole}? " if whole else "" if slash else "an id is suite/name, e.g. gymnax/CartPole-v1; "


def check_installed(id: str) -> None:
    """Raise an InputError that names the extra unless the package of `id` is installed; imports nothing."""
    suite, name, _ = split(id)
    for package, extra in NEEDED.get(suite, {}).items():
        if find_spec(package) is None:
            instead = f"; torch/{name} does not need it" if f"torch/{name}" in ids() else ""
            raise InputError(f"env={id} needs {package}, which is not installed: {install(extra)}{instead}")
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


def make(id: str, num_envs: int, framework: Literal["jax", "torch"], render_mode: str | None = None) -> Env:
    """`num_envs` copies of environment `id` whose arrays are of `framework`.

    `render_mode` is gymnasium's; with "rgb_array" the first copy of an external environment can be drawn.
    """
    made = _make(id, num_envs, render_mode)
    if not isinstance(made, Env):
        return import_module(f"benchback.envs.external.{framework}").serve(made)
    if made.framework == "torch" and framework == "jax":
        twin = f", or gymnax/{split(id).task}" if id.startswith("torch/") else ""
        raise InputError(f"env={id} is native to PyTorch; use --backend pytorch{twin}")
    if made.framework == "jax" and framework == "torch":
        return import_module("benchback.envs.bridge").to_torch(made)
    return made


def make_external(id: str, num_envs: int) -> Any:
    """`num_envs` copies of an external environment: NumPy arrays in, NumPy arrays out."""
    made = _make(id, num_envs)
    if isinstance(made, Env):
        raise InputError(f"env={id} is computed by {made.framework}, not in Python")
    return made


def _make(id: str, num_envs: int, render_mode: str | None = None) -> Any:
    """The environment with its wrappers: an Env of its own framework, or an ExternalEnv."""
    check(id)
    check_installed(id)
    parts = split(id)
    asked = wrappers.parse(parts.wrappers, id)
    params = wrappers.parameters(asked)
    asked = tuple(wrapper for wrapper in asked if not wrapper.name.startswith(wrappers.PARAMETER))
    if params and parts.suite != "gymnax":
        raise InputError(f"env={id}: only environments of gymnax have parameters; leave out param.{next(iter(params))}")
    if params:
        env = _suite("gymnax").make_with(parts.name, num_envs, params)
    elif parts.suite == "torch":
        env = _suite("torch").make(parts.name, num_envs, wrappers.value(asked, "time_limit"))
        asked = tuple(wrapper for wrapper in asked if wrapper.name != "time_limit")
    elif parts.suite in OWN:
        env = _suite("own").make(_bare(parts), num_envs, render_mode)
    elif parts.suite == "gymnasium":
        env = _suite("gymnasium").make(parts.name, num_envs, render_mode)
    else:
        env = _suite(parts.suite).make(parts.name, num_envs)
    if isinstance(env, Env):
        wrapped = import_module(f"benchback.envs.wrappers.{env.framework}").wrap(env, asked) if asked else env
        return replace(wrapped, id=id)
    return _external(env, id, num_envs, asked)


def _external(copies: Any, id: str, num_envs: int, asked: tuple[wrappers.Wrapper, ...]) -> Any:
    external = import_module("benchback.envs.external").ExternalEnv
    if not asked:
        return external(id, num_envs, copies)
    wrapping = import_module("benchback.envs.wrappers.numpy")
    if limit := wrappers.value(asked, "time_limit"):
        copies = wrapping.limited(copies, num_envs, limit)
    return wrapping.WrappedExternal(external(id, num_envs, copies), asked)
