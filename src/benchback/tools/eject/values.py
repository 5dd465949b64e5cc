"""What is known about a value before the program runs. Numbers are never known: they stay in the program as written."""

import ast
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unknown:
    """Any value."""


@dataclass(frozen=True)
class Unseen:
    """No value yet: the code that would compute it has not been looked at."""


TOP, UNSEEN = Unknown(), Unseen()


@dataclass(frozen=True)
class Const:
    """None, a truth value, a string or an empty tuple."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, eq=False)
class Named:
    """A number or a type with a name that it does not need."""

    node: ast.expr


@dataclass(frozen=True)
class Module:
    """A module of this package, passed as a value."""

    name: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function or lambda of the program; equal only to itself."""

    node: Any
    symbol: str | None = None
    """Its symbol, if it is a top-level definition."""
    compiled: bool = False
    """Whether this is what torch.compile makes of it: it computes the same, and must not be called by its own name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.node is other.node

    def __hash__(self) -> int:
        return id(self.node)


@dataclass(frozen=True, eq=False)
class Wrapped:
    """A function of the program as a library wraps it."""

    node: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wrapped) and self.node is other.node

    def __hash__(self) -> int:
        return id(self.node)


@dataclass(frozen=True)
class Class:
    """A class of the program."""

    symbol: str


@dataclass(frozen=True)
class Instance:
    """An instance of a class of the program."""

    symbol: str
    fields: tuple[tuple[str, Any], ...] | None = None
    """What is known of this very instance; None if only what is true of all."""
    name: str | None = None
    """The symbol of the constant that it is, if it is always that one."""

    def get(self, name: str) -> Any:
        """The value of a field of this very instance; None if nothing is known."""
        return dict(self.fields or ()).get(name)


@dataclass(frozen=True)
class Partial:
    """A function of the program with some of its arguments given by name."""

    function: Function
    given: tuple[tuple[str, Any, "Written"], ...]


@dataclass(frozen=True)
class Items:
    """A tuple of known length."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A dictionary written as a literal with strings as keys."""

    items: tuple[tuple[str, Any, "Written"], ...]


@dataclass(frozen=True, eq=False)
class Written:
    """An expression as it is written; equal only to itself."""

    node: ast.expr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Written) and self.node is other.node

    def __hash__(self) -> int:
        return id(self.node)


@dataclass(frozen=True)
class Library:
    """A name of a library, e.g. `jax.numpy.matmul` under the alias it is imported by."""

    text: str


@dataclass(frozen=True)
class Cell:
    """A field that holds its value in a box with `get_value` and `set_value`."""

    symbol: str
    field: str


@dataclass(frozen=True)
class Live:
    """An object of a library whose class is known, e.g. the action space of the environment."""

    kind: str


def join(a: Any, b: Any) -> Any:
    """What is known of a value that is one of the two."""
    if a == b or isinstance(b, Unseen):
        return a
    if isinstance(a, Unseen):
        return b
    if isinstance(a, Items) and isinstance(b, Items) and len(a.items) == len(b.items):
        return Items(tuple(map(join, a.items, b.items)))
    if isinstance(a, Instance) and isinstance(b, Instance) and a.symbol == b.symbol:
        return Instance(a.symbol, _joined_fields(a, b))
    return TOP


def _joined_fields(a: Instance, b: Instance) -> Any:
    if a.fields is None or b.fields is None or {k for k, _ in a.fields} != {k for k, _ in b.fields}:
        return None
    return tuple((name, join(value, b.get(name))) for name, value in a.fields)


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; None if that is not known."""
    match value:
        case Const(x):
            return bool(x)
        case Items(items):
            return bool(items)
        case Module() | Function() | Partial() | Class() | Instance() | Library():
            return True
    return None


@dataclass(frozen=True)
class Boxed:
    """A box made of a value, before it is stored in a field."""

    value: Any
