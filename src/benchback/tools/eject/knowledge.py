"""What an analysis knows of a program, in tables that only grow."""

import ast
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from benchback.tools.eject.link import Program
from benchback.tools.eject.values import (
    TOP,
    UNSEEN,
    Boxed,
    Cell,
    Class,
    Const,
    Function,
    Instance,
    Items,
    Named,
    Partial,
    Unknown,
    Unseen,
    join,
)

COLLECTING = ("append", "extend")
"""Methods of a library's classes that call nothing; `extend` keeps only what its argument contains."""
TRANSPARENT = ("torch.no_grad", "torch.inference_mode")
"""Decorators that leave a function's arguments and its result as they are."""


@dataclass(frozen=True)
class Facts:
    """What is known from the outside."""

    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Class -> field -> value."""
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Function -> parameter -> value."""
    calls: dict[str, Any] = field(default_factory=dict)
    """Call of a library, as written -> value."""
    dtypes: dict[str, Any] = field(default_factory=dict)
    """Type of a library, as written -> whether that of any array is compared with it successfully."""


@dataclass(eq=False)
class Frame:
    """A function while it is looked at."""

    node: Any
    parent: "Frame | None"
    own: set[str]
    """Names it binds."""
    variables: dict[str, Any] = field(default_factory=dict)
    """Name -> all that it may be at any time."""
    nested: list[Any] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Site:
    """A call of a known function."""

    call: Any
    function: Any
    skipped: int
    """Leading parameters that the call does not give: `self`."""
    first: int = 0
    """Position of the function's first argument in the call."""

    @property
    def plain(self) -> bool:
        """Whether the call could be replaced by what the function computes."""
        compiled = getattr(getattr(self.call.func, "known", None), "compiled", False)
        return not self.first and not self.skipped and not compiled


class Knowledge:
    """Tables of what is known, and how they grow; the interpreter above it fills them."""

    def __init__(self, program: Program, entry: str, facts: Facts):
        self.program, self.entry, self.facts = program, entry, facts
        self.given = {self._node_of(symbol): values for symbol, values in facts.params.items()}
        self.declarations: dict[str, dict[str, Any]] = {}
        self.methods: dict[str, dict[str, Any]] = {}
        self.params: dict[Any, dict[str, Any]] = {}
        self.returns: dict[Any, Any] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        self.cells: dict[tuple[str, str], Any] = {}
        self.globals: dict[str, Any] = {}
        self.frames: dict[Any, Frame] = {}
        self.escaped: set[Any] = set()
        self.owners: dict[Any, str] = {}
        self.sites: list[Site] = []
        self.reached: list[str] = []
        self.constructions: list[tuple[Any, str]] = []
        """Calls that make an instance of a class, or one with other fields."""
        self.iterated: set[str] = set()
        """Classes whose instances are used as plain tuples: their fields have places."""
        self.given_away: set[str] = set()
        """Classes whose instances a library may call."""
        self.read_unseen: set[tuple[str, str]] = set()
        self.changed = False

    def mention(self, symbol: str) -> None:
        """Note that the program uses a definition."""
        if symbol not in self.reached:
            self.reached.append(symbol)

    def param(self, node: Any, name: str) -> Any:
        """What a parameter may be: the values of all calls, or any of its annotated type."""
        if name in (given := self.given.get(node, {})):
            return given[name]
        value = TOP if node in self.escaped else self.params[node].setdefault(name, UNSEEN)
        if name == "self" and node in self.owners:
            return Instance(self.owners[node])
        if not isinstance(value, Unknown) or isinstance(node, ast.Lambda):
            return value
        return self._annotated(next((x.annotation for x in all_args(node) if x.arg == name), None))

    def _node_of(self, symbol: str) -> Any:
        definition = self.program.definitions.get(symbol)
        return definition and definition.node

    def _annotated(self, annotation: Any) -> Any:
        if isinstance(annotation, ast.Name):
            node = self._node_of(annotation.id)
            if isinstance(node, ast.ClassDef):
                return Instance(annotation.id)
            if isinstance(node, ast.Assign):  # another name of a class
                return self._annotated(node.value)
        match annotation:
            case ast.Subscript(value=ast.Name("tuple"), slice=ast.Tuple(elts=items)) if not _endless(items):
                return Items(tuple(map(self._annotated, items)))
        return TOP

    def give(self, node: Any, name: str, value: Any) -> None:
        """Note that a call passes `value` for a parameter."""
        values = self.params.setdefault(node, {})
        before = values.get(name, UNSEEN)
        values[name] = join(before, value)
        if isinstance(values[name], Unknown) and not isinstance(before, Unknown):
            self.escape(before)
            self.escape(value)
        self.changed |= values[name] != before

    def escape(self, value: Any) -> None:
        """Note that a value is used in a way that cannot be followed: functions in it get any arguments."""
        if isinstance(value, Function) and value.node not in self.escaped:
            self.escaped.add(value.node)
            self.changed = True
        elif isinstance(value, Partial):
            self.escape(value.function)
        elif isinstance(value, Items):
            for item in value.items:
                self.escape(item)
        elif isinstance(value, Instance):
            self.given_away.add(value.symbol)
            for _, item in value.fields or ():
                self.escape(item)

    def iterate(self, value: Any) -> None:
        """Note that a value is taken apart by place."""
        self.escape(value)
        for x in (value, *(value.items if isinstance(value, Items) else ())):
            if isinstance(x, Instance):
                self.iterated.add(x.symbol)

    def _remember(self, frame: Frame, name: str, value: Any) -> None:
        before = frame.variables.get(name, UNSEEN)
        frame.variables[name] = join(before, value)
        if isinstance(frame.variables[name], Unknown) and not isinstance(before, Unknown):
            self.escape(before)
            self.escape(value)
        self.changed |= frame.variables[name] != before

    def store(self, symbol: str, name: str, value: Any) -> None:
        """Note that a field of a class is set to a value."""
        values = self.fields.setdefault(symbol, {})
        if isinstance(value, Boxed):
            before = self.cells.get((symbol, name), UNSEEN)
            self.cells[symbol, name] = join(before, value.value)
            self.changed |= self.cells[symbol, name] != before
            value = Cell(symbol, name)
        before = values.get(name, UNSEEN)
        values[name] = join(before, value)
        if isinstance(values[name], Unknown) and not isinstance(before, Unknown):
            self.escape(before)
            self.escape(value)
        self.changed |= values[name] != before

    def read(self, instance: Instance, name: str) -> Any:
        """The value of an attribute of an instance."""
        fixed = self.facts.fields.get(instance.symbol, {})
        if name in fixed:
            return fixed[name]
        if (own := instance.get(name)) is not None:
            return own
        method = self.method(instance.symbol, name)
        if method is not None:
            if "property" not in {ast.unparse(x) for x in method.decorator_list}:
                self.escape(Function(method))
                return TOP
            return self.returns.get(method, UNSEEN)
        if name not in self.declared(instance.symbol):
            if name not in COLLECTING:
                self.given_away.add(instance.symbol)
            return TOP
        self.mention(instance.symbol)
        value = self.fields.setdefault(instance.symbol, {}).get(name, UNSEEN)
        if isinstance(value, Unseen):
            self.read_unseen.add((instance.symbol, name))
        if isinstance(value, Unknown):
            return self._annotated(self.declared(instance.symbol)[name])
        return value

    def method(self, symbol: str, name: str) -> Any:
        """The method of that name; None if the class itself defines none."""
        if symbol not in self.methods:
            body = self.program.definitions[symbol].node.body
            self.methods[symbol] = {x.name: x for x in body if isinstance(x, ast.FunctionDef)}
        return self.methods[symbol].get(name)

    def declared(self, symbol: str) -> dict[str, Any]:
        """Fields of a class -> annotation: those it declares and those its methods set."""
        if symbol in self.declarations:
            return self.declarations[symbol]
        node = self.program.definitions[symbol].node
        found: dict[str, Any] = {}
        for x in ast.walk(node):
            match x:
                case ast.Attribute(value=ast.Name("self"), ctx=ast.Store()):
                    found[x.attr] = None
        for x in node.body:
            if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name):
                found[x.target.id] = x.annotation
        self.declarations[symbol] = found
        return found

    def global_value(self, symbol: str) -> Any:
        """The value of a top-level assignment."""
        if symbol not in self.globals:
            self.globals[symbol] = TOP
            node = self.program.definitions[symbol].node
            value = self.see(node.value, {}, None) if node.value else TOP
            # A constant keeps its name where it has one, except for names of what is in the program anyway.
            keep = isinstance(value, Const) and not isinstance(value.value, str)
            number = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float)
            if number or isinstance(node.value, ast.Subscript):
                return self._named(symbol, node.value)
            if isinstance(value, Instance):
                value = replace(value, name=symbol)
            self.globals[symbol] = TOP if keep else value
        return self.globals[symbol]

    def _named(self, symbol: str, node: ast.expr) -> Any:
        """A number or a type that is mentioned once, or as short as its name, needs no name."""
        once = self.mentions[symbol] == 1 or ast.unparse(node) == "dict[str, Any]"
        self.globals[symbol] = Named(node) if once else TOP
        return self.globals[symbol]

    @cached_property
    def mentions(self) -> Counter[str]:
        """How often each name is read in the program."""
        nodes = [x for definition in self.program.definitions.values() for x in ast.walk(definition.node)]
        return Counter(x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load))

    def symbol_value(self, symbol: str) -> Any:
        """The value of a top-level definition."""
        node = self.program.definitions[symbol].node
        if isinstance(node, ast.FunctionDef):
            return TOP if node.decorator_list and not _transparent(node) else Function(node, symbol)
        return Class(symbol) if isinstance(node, ast.ClassDef) else self.global_value(symbol)

    def _returns(self, node: Any, value: Any) -> None:
        before = self.returns.get(node, UNSEEN)
        self.returns[node] = join(before, value)
        self.changed |= self.returns[node] != before

    def see(self, node: Any, env: dict[str, Any], frame: Frame | None) -> Any:
        """The value of an expression, noted at the expression."""
        raise NotImplementedError

    def bind(self, target: Any, value: Any, env: dict[str, Any], frame: Frame | None) -> None:
        """Assign a value to a target."""
        raise NotImplementedError

    def look_into(self, node: Any, parent: Frame | None) -> None:
        """Go through a function."""
        raise NotImplementedError


def _endless(items: list[ast.expr]) -> bool:
    return any(isinstance(x, ast.Constant) and x.value is Ellipsis for x in items)


def _transparent(node: ast.FunctionDef) -> bool:
    return all(ast.unparse(x).partition("(")[0] in TRANSPARENT for x in node.decorator_list)


def all_args(node: Any) -> list[ast.arg]:
    """All parameters of a function."""
    a = node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]


def parameters(node: Any) -> list[str]:
    """Names of all parameters of a function."""
    return [x.arg for x in all_args(node)]


def annotations(node: Any) -> list[ast.expr]:
    """Annotations of a function."""
    found = [*(x.annotation for x in all_args(node)), getattr(node, "returns", None)]
    return [x for x in found if x is not None]


def default_of(node: Any, name: str) -> ast.expr | None:
    """The default of a parameter, if it has one."""
    positional = [x.arg for x in (*node.args.posonlyargs, *node.args.args)]
    if name in positional:
        place = positional.index(name) - len(positional) + len(node.args.defaults)
        return node.args.defaults[place] if place >= 0 else None
    return next((d for x, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if x.arg == name), None)
