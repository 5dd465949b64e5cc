"""gymnax environments as vectorised device environments: they are part of the compiled program."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from benchback.envs.interface import Box, Discrete, Env
from benchback.envs.lazy_imports import lazy_imports
from benchback.envs.vectorise import vectorise
from benchback.errors import InputError

# gymnax imports them for rendering only, which takes two seconds.
with lazy_imports("seaborn", "matplotlib", "matplotlib.colors", "matplotlib.pyplot"):
    import gymnax
    from gymnax.environments import spaces


def make(name: str, num_envs: int) -> Env:
    """The gymnax environment `name`, `num_envs` times."""
    environment, params = gymnax.make(name)
    space = environment.action_space(params)
    return vectorise(environment, params, f"gymnax/{name}", num_envs, _actions(space))


def make_with(name: str, num_envs: int, given: Mapping[str, float]) -> Env:
    """The same with the given parameters in place of its own."""
    environment, params = gymnax.make(name)
    space = environment.action_space(params)
    return vectorise(environment, _changed(params, given, name), f"gymnax/{name}", num_envs, _actions(space))


def _changed(params: Any, given: Mapping[str, float], name: str) -> Any:
    known = {field.name: getattr(params, field.name) for field in fields(params)}
    numbers = {field: x for field, x in known.items() if isinstance(x, int | float)}
    for field, value in given.items():
        if field not in numbers:
            raise InputError(f"param.{field} is no parameter of gymnax/{name}; choose one of {', '.join(numbers)}")
        if isinstance(numbers[field], int) and not value.is_integer():
            raise InputError(f"param.{field}={value} of gymnax/{name} is a whole number, e.g. {numbers[field]}")
    return params.replace(**{field: type(numbers[field])(value) for field, value in given.items()})


def _actions(space: Any) -> Discrete | Box:
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    low, high = (np.broadcast_to(bound, space.shape).ravel().tolist() for bound in (space.low, space.high))
    return Box(tuple(low), tuple(high))
