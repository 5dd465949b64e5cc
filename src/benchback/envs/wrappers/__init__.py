"""Wrappers: changes to any environment, written into its id and applied from left to right, the first innermost.

`gymnax/Breakout-MinAtar+frame_stack=4+sticky_actions=0.25+clip_reward+time_limit=500`. A parameter of a suite's own is
written in the same way: `gymnax/MemoryChain-bsuite+param.memory_length=10`. What each of them does to arrays
is in `arrays.py`, once for JAX, torch and NumPy; what needs a framework's randomness or resets is in `jax.py`,
`torch.py` and `numpy.py`. Importing this package imports no framework.
"""

import math
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from benchback.errors import InputError


class Kind(NamedTuple):
    """What a wrapper's value must be."""

    parse: Callable[[str], Any]
    fits: Callable[[Any], bool]
    expected: str
    default: Any = None
    """Value of a wrapper that is named without one; None if it needs one."""


KINDS = {
    "frame_stack": Kind(int, lambda value: 2 <= value <= 64, "a whole number from 2 to 64, e.g. frame_stack=4"),
    "sticky_actions": Kind(float, lambda value: 0 < value < 1, "a probability, e.g. sticky_actions=0.25"),
    "clip_reward": Kind(float, lambda value: 0 < value < 1e9, "a positive number, e.g. clip_reward=1", default=1.0),
    "observe": Kind(
        lambda text: tuple(map(int, text.split(","))),
        lambda value: min(value) >= 0 and len(set(value)) == len(value),
        "different entries of the observation, counted from 0, e.g. observe=0,2",
    ),
    "time_limit": Kind(int, lambda value: 1 <= value < 2**31, "a whole number of steps, e.g. time_limit=500"),
}
"""Name -> its value."""
PARAMETER = "param."
"""Begins the name of a parameter of the environment itself."""
OF_PARAMETER = Kind(float, math.isfinite, "a number, e.g. param.memory_length=10")


class Wrapper(NamedTuple):
    """A wrapper with its value."""

    name: str
    value: Any


def parse(texts: Sequence[str], id: str) -> tuple[Wrapper, ...]:
    """The wrappers of environment `id`; InputError names the wrong one and what it must be."""
    found: dict[str, Wrapper] = {}
    for text in texts:
        wrapper = _parse(text, id)
        if wrapper.name in found:
            raise InputError(f"env={id} has {wrapper.name} twice; keep one")
        found[wrapper.name] = wrapper
    return tuple(found.values())


def value(wrappers: Sequence[Wrapper], name: str) -> Any:
    """The value of the wrapper of that name; None if there is none."""
    return next((wrapper.value for wrapper in wrappers if wrapper.name == name), None)


def parameters(wrappers: Sequence[Wrapper]) -> dict[str, float]:
    """The parameters of the environment itself, by name."""
    return {x.name.removeprefix(PARAMETER): x.value for x in wrappers if x.name.startswith(PARAMETER)}


def _parse(text: str, id: str) -> Wrapper:
    name, equals, given = text.partition("=")
    if name not in KINDS and not name.startswith(PARAMETER):
        near = get_close_matches(name, KINDS, n=1, cutoff=0)[0]
        raise InputError(
            f"env={id}: wrapper {name or 'without a name'} is unknown; did you mean {near}? Known: {', '.join(KINDS)}"
        )
    kind = KINDS.get(name, OF_PARAMETER)
    if not equals and kind.default is not None:
        return Wrapper(name, kind.default)
    try:
        value = kind.parse(given)
    except ValueError:
        value = None
    if value is None or not kind.fits(value):
        raise InputError(f"env={id}: {text} must be {kind.expected}")
    return Wrapper(name, value)
