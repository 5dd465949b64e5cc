"""A user's own environments: `python:module.name`, and `plugin/NAME` of an entry point in `benchback.environments`.

Both name something that makes an environment; what it is, is found by looking at it:

- a JAX environment of one copy: gymnax's methods `reset_env(key, params)`, `step_env(key, state, action, params)` and
  `is_truncated(state, params)`, and `action_space(params)`, or `actions` (our `Discrete` or `Box`);
- an `Env` built directly, of JAX or torch arrays;
- `Copies`, or an object with its attributes, which runs in Python;
- a `gymnasium.Env`, made once for each copy.

What is callable is called, with `num_envs` and `render_mode` if it takes arguments of these names.
"""

import inspect
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from benchback.envs.external import Copies
from benchback.envs.ids import EnvId
from benchback.envs.interface import Box, Discrete, Env
from benchback.errors import InputError
from benchback.plugins.imports import cause, import_named, installed, load

GROUP = "benchback.environments"
KINDS = (
    "a JAX environment with gymnax's reset_env and step_env, a benchback Env, Copies (start, advance, restart), "
    "or a gymnasium.Env"
)
REQUIRED = tuple(name for name in Copies._fields if name not in Copies._field_defaults)


class Facts(NamedTuple):
    """What is known of an environment once it has been made."""

    kind: Any
    """The kind of its actions: discrete or box."""
    where: Any
    """The framework that computes it: jax, torch or python."""
    notes: tuple[str, ...] = ()


def check(id: EnvId) -> None:
    """Raise an InputError unless it names something that can be loaded."""
    target(id)


@cache
def facts(id: EnvId) -> Facts:
    """What is known of the environment, which has to be made to find out."""
    made = make(id, 1)
    if isinstance(made, Copies):
        return Facts(made.actions.kind, "python", made.notes)
    return Facts(made.actions.kind, made.framework)


def make(id: EnvId, num_envs: int, render_mode: str | None = None) -> Env | Copies:
    """`num_envs` copies of the environment, without wrappers."""
    named = target(id)
    given = {"num_envs": num_envs, "render_mode": render_mode}
    made = _called(named, id, given)
    if _is_gymnasium(made):
        others = [_called(named, id, given) for _ in range(num_envs - 1)]
        return _gymnasium_copies([made, *others], id)
    if isinstance(made, Env):
        return _checked(made, id, num_envs)
    if all(hasattr(made, name) for name in REQUIRED):
        return Copies(*(getattr(made, name) for name in REQUIRED), render=getattr(made, "render", None))
    environment, params = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if hasattr(environment, "reset_env") and hasattr(environment, "step_env"):
        return _vectorised(environment, params, id, num_envs)
    raise InputError(f"env={id.base} gives {_described(made)}; it must give {KINDS}")


def target(id: EnvId) -> Any:
    """What the id names: a function, a class or an object."""
    if id.suite == "plugin":
        entries = installed(GROUP)
        if id.name not in entries:
            known = ", ".join(f"plugin/{name}" for name in sorted(entries)) or "none"
            near = get_close_matches(id.name, entries, n=1, cutoff=0.6)
            hint = f"did you mean plugin/{near[0]}? " if near else ""
            raise InputError(f"env={id.base}: no installed package has it; {hint}There are: {known}")
        return load(entries[id.name])
    module, _, name = id.name.rpartition(".")
    if not module:
        raise InputError(f"env={id.base} must be python:MODULE.NAME, e.g. python:my_module.make")
    found = import_named(module, f"env={id.base}")
    if not hasattr(found, name):
        public = [x for x in vars(found) if not x.startswith("_")]
        near = get_close_matches(name, public, n=1, cutoff=0.6)
        hint = f"did you mean {module}.{near[0]}?" if near else "define it there"
        raise InputError(f"env={id.base}: module {module} has no {name}; {hint}")
    return getattr(found, name)


def _called(named: Any, id: EnvId, given: dict[str, Any]) -> Any:
    """What the callable gives, and what a class that it gives does; an object that is not callable itself."""
    if not callable(named):
        return named
    try:
        takes = inspect.signature(named).parameters
    except ValueError:  # some builtins have none
        takes = {}
    try:
        made = named(**{name: value for name, value in given.items() if name in takes and value is not None})
    except InputError:
        raise
    # It is the user's code: any failure of it is theirs to mend, and a traceback through ours does not help.
    except Exception as error:
        raise InputError(f"env={id.base} cannot be made: {cause(error)}") from error
    return _called(made, id, given) if isinstance(made, type) else made


def _is_gymnasium(made: Any) -> bool:
    """Whether it is a gymnasium.Env; does not import gymnasium."""
    return any(x.__module__.startswith("gymnasium.") and x.__name__ == "Env" for x in type(made).__mro__)


def _gymnasium_copies(environments: list[Any], id: EnvId) -> Copies:
    if any(first is other for first, other in combinations(environments, 2)):
        raise InputError(f"env={id.base} gives the same gymnasium environment every time; make a new one at every call")
    return import_module("benchback.envs.gymnasium").copies(environments, id.base)


def _checked(env: Env, id: EnvId, num_envs: int) -> Env:
    if env.num_envs != num_envs:
        raise InputError(
            f"env={id.base} gives an Env of {env.num_envs} copies where {num_envs} are needed; "
            "give its function an argument num_envs, and make so many"
        )
    if env.framework == "torch" and (other := _not_tensors(env.reset(env.random(0)))) is not None:
        raise InputError(
            f"env={id.base} keeps {_described(other)} in its state; programs and checkpoints take tensors only, and "
            "tuples and dictionaries of them"
        )
    return replace(env, id=id.base)


def _not_tensors(state: Any) -> Any:
    """What a state contains beside tensors, tuples and dictionaries, if anything."""
    if isinstance(state, tuple | list | dict):
        parts = state.values() if isinstance(state, dict) else state
        return next((found for x in parts if (found := _not_tensors(x)) is not None), None)
    return None if isinstance(state, import_module("torch").Tensor) else state


def _vectorised(environment: Any, params: Any, id: EnvId, num_envs: int) -> Env:
    vectorise = import_module("benchback.envs.vectorise").vectorise
    params = getattr(environment, "default_params", None) if params is None else params
    environment = environment if hasattr(environment, "is_truncated") else Unlimited(environment)
    try:
        made = vectorise(environment, params, id.base, num_envs, _actions(environment, params, id))
    except InputError:
        raise
    except Exception as error:
        needed = "step_env must return observation, state, reward, terminated and a dictionary"
        raise InputError(f"env={id.base} cannot be stepped: {cause(error)}; {needed}") from error
    draw = getattr(environment, "render_state", None)
    return made if draw is None else replace(made, render=lambda state: draw(state, params))


@dataclass(frozen=True)
class Unlimited:
    """A JAX environment that does not tell of truncation, because it has no time limit."""

    environment: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    def is_truncated(self, state: Any, params: Any) -> bool:
        """False."""
        return False


def _actions(environment: Any, params: Any, id: EnvId) -> Discrete | Box:
    """Its `actions`, or those of the space that `action_space` is or returns: gymnax's, or one like it."""
    actions = getattr(environment, "actions", None)
    if isinstance(actions, Discrete | Box):
        return actions
    space: Any = getattr(environment, "action_space", None)
    space = space(params) if callable(space) else space
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if all(hasattr(space, name) for name in ("low", "high", "shape")):
        low, high = (np.broadcast_to(bound, space.shape).ravel().tolist() for bound in (space.low, space.high))
        return Box(tuple(low), tuple(high))
    raise InputError(
        f"env={id.base} does not tell its actions; give it an attribute actions, "
        "benchback.envs.interface.Discrete(2) or Box((-1.0,), (1.0,)), or gymnax's action_space"
    )


def _described(made: Any) -> str:
    return "nothing" if made is None else f"an object of type {type(made).__module__}.{type(made).__qualname__}"
