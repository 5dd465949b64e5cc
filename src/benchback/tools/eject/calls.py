"""Calls: of functions and classes of the program, of methods, and of libraries whose rule is simple."""

import ast
from typing import Any

from benchback.tools.eject.knowledge import Frame, Knowledge, Site, default_of
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
    Library,
    Live,
    Partial,
    Unknown,
    Unseen,
    Wrapped,
    Written,
    join,
)

STRING_METHODS = ("endswith", "startswith", "removeprefix", "removesuffix")
PLAIN_BASES = ("NamedTuple", "nnx.Pytree", "optax.GradientTransformationExtraArgs")
"""Classes of libraries that do not call what their instances contain."""
FOLLOWED = (
    "isinstance",
    "hasattr",
    "getattr",
    "replace",
    "cast",
    "torch.compile",
    "partial",
    "jnp.dtype",
    "nnx.Variable",
)
"""Functions of libraries whose result is known if their arguments are."""


class Calls(Knowledge):
    """What calls return, and what they tell of the functions they call."""

    def _see_Call(self, node: ast.Call, env: dict[str, Any], frame: Frame | None) -> Any:
        args = [self.see(x, env, frame) for x in node.args]
        keywords = {x.arg: self.see(x.value, env, frame) for x in node.keywords}
        if isinstance(node.func, ast.Attribute):
            owner = self.see(node.func.value, env, frame)
            node.func.known = TOP  # type: ignore[attr-defined]
            answer = self._method_call(node, owner, args, keywords)
            if answer is not None:
                return answer
        callee = self.see(node.func, env, frame)
        match callee:
            case Unseen():
                return UNSEEN
            case Function():
                return self._call(node, callee.node, args, keywords)
            case Wrapped():
                for value in (*args, *keywords.values()):
                    self.escape(value)
                return self._annotated(callee.node.returns)
            case Partial(function, given):
                return self._call(node, function.node, args, {name: value for name, value, _ in given} | keywords)
            case Class(symbol):
                return self._construct(node, symbol, args, keywords)
            case Library(text):
                return self._library_call(node, text, args, keywords)
            case Instance(symbol):
                method = self.method(symbol, "__call__") or self.method(symbol, "forward")
                if method is not None:
                    return self._call(node, method, args, keywords, skipped=1)
        for value in (*args, *keywords.values()):
            if not (
                isinstance(value, Instance) and isinstance(node.func, ast.Attribute) and node.func.attr == "extend"
            ):
                self.escape(value)
        return TOP

    def _call(
        self, node: Any, function: Any, args: list[Any], keywords: dict[Any, Any], skipped: int = 0, first: int = 0
    ) -> Any:
        self.sites.append(Site(node, function, skipped, first))
        names = [x.arg for x in (*function.args.posonlyargs, *function.args.args)][skipped:]
        rest = dict.fromkeys([*names, *(x.arg for x in function.args.kwonlyargs)])
        spread, certain = self._positional(node.args[first:], args)
        for name, value in zip(names, spread, strict=False):
            self.give(function, name, value)
            rest.pop(name)
        if function.args.vararg:
            extra = Items(tuple(spread[len(names) :])) if spread[len(names) :] else Const(())
            self.give(function, function.args.vararg.arg, extra if certain else TOP)
        for name, value in keywords.items():
            if name in rest:
                self.give(function, name, value)
                rest.pop(name)
            else:
                self.escape(value)
        for name in rest:
            default = default_of(function, name)
            unknown = not certain or None in keywords
            self.give(function, name, TOP if unknown or default is None else self.see(default, {}, None))
        return self.returns.get(function, UNSEEN)

    def _positional(self, nodes: list[ast.expr], args: list[Any]) -> tuple[list[Any], bool]:
        """Values of positional arguments with known tuples unpacked, and whether that is all of them."""
        found: list[Any] = []
        for node, value in zip(nodes, args, strict=True):
            if not isinstance(node, ast.Starred):
                found.append(value)
            elif isinstance(value, Items):
                found += value.items
            elif value != Const(()):
                return found, False
        return found, True

    def _construct(self, node: ast.Call, symbol: str, args: list[Any], keywords: dict[Any, Any]) -> Any:
        if (init := self.method(symbol, "__init__")) is not None:
            self._call(node, init, args, keywords, skipped=1)
            return Instance(symbol)
        spread, certain = self._positional(node.args, args)
        values: dict[str, Any] = {}
        names = [name for name, annotation in self.declared(symbol).items() if annotation is not None]
        for name in names:
            statement = self._declaration(symbol, name)
            default = statement.value and self.see(statement.value, {}, None)
            values[name] = TOP if not certain or None in keywords or default is None else default
        values |= dict(zip(names, spread, strict=False)) | {k: v for k, v in keywords.items() if k in values}
        bases = self.program.definitions[symbol].node.bases
        for name, value in values.items():
            self.store(symbol, name, value)
            if any(ast.unparse(base) not in PLAIN_BASES for base in bases):
                self.escape(value)  # a library may call it by the rules of its own class
        self.constructions.append((node, symbol))
        return Instance(symbol, tuple(values.items()))

    def _declaration(self, symbol: str, name: str) -> Any:
        body = self.program.definitions[symbol].node.body
        return next(x for x in body if isinstance(x, ast.AnnAssign) and ast.unparse(x.target) == name)

    def _method_call(self, node: ast.Call, owner: Any, args: list[Any], keywords: dict[Any, Any]) -> Any:
        """The result of calling a method of a known object; None if it is none."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        match owner:
            case Instance() if name == "_replace":
                return self._replace(node, owner, keywords)
            case Instance() if (method := self.method(owner.symbol, name)) is not None:
                return self._call(node, method, args, keywords, skipped=1)
            case Cell() if name == "get_value":
                return self.cells.get((owner.symbol, owner.field), UNSEEN)
            case Cell() if name == "set_value":
                self.store(owner.symbol, owner.field, Boxed(args[0]))
                return TOP
            case Unknown() if name == "_replace":
                for symbol in [x for x in self.reached if isinstance(self._node_of(x), ast.ClassDef)]:
                    for changed in keywords.keys() & self.declared(symbol).keys():
                        self.store(symbol, changed, keywords[changed])
            case Const(str() as text) if name in STRING_METHODS and all(isinstance(x, Const) for x in args):
                return Const(getattr(text, name)(*(x.value for x in args)))
        return None

    def _replace(self, node: ast.Call, owner: Instance, changes: dict[Any, Any]) -> Instance:
        self.constructions.append((node, owner.symbol))
        for name, value in changes.items():
            if name is not None:
                self.store(owner.symbol, name, value)
        if owner.fields is None or None in changes:
            return Instance(owner.symbol)
        return Instance(owner.symbol, tuple((dict(owner.fields) | changes).items()))

    def _library_call(self, node: ast.Call, text: str, args: list[Any], keywords: dict[Any, Any]) -> Any:
        if text in self.facts.calls:
            return self.facts.calls[text]
        if text in FOLLOWED and any(isinstance(x, Unseen) for x in args):
            return UNSEEN
        match text, args:
            case "isinstance", [Live(name), _] if (kinds := self._kinds(node.args[1])) is not None:
                return Const(name in kinds)
            case "isinstance", [value, kind]:
                return self._is_instance(value, kind)
            case "hasattr", [Instance() as owner, Const(str() as name)]:
                methods = self.method(owner.symbol, name) is not None
                return Const(methods or name in self.fields.setdefault(owner.symbol, {}))
            case "hasattr", [Function(), Const(str() as name)]:
                return Const(False)
            case "getattr", [Library(owner), Const(str() as name)]:
                return Library(f"{owner}.{name}")
            case "getattr", [Instance() as owner, Const(str() as name)]:
                return self.read(owner, name)
            case "replace", [Instance() as owner]:
                return self._replace(node, owner, keywords)
            case "cast", [_, value]:
                return value
            case "torch.compile", [Function() as function]:
                return Function(function.node, function.symbol, compiled=True)
            case "partial", [Function() as function]:
                written = {x.arg: Written(x.value) for x in node.keywords}
                return Partial(function, tuple((name, x, written[name]) for name, x in keywords.items()))
            case "jnp.dtype", [Const(str() as name)]:
                return Library(f"jnp.{name}")
            case "nnx.Variable", [value]:
                return UNSEEN if isinstance(value, Unseen) else Boxed(value)
            case "jax.lax.scan", [Function() as function, *_]:
                for value in (*args, *keywords.values()):
                    self.escape(value)
                return self._annotated(getattr(function.node, "returns", None))
            case "jax.lax.cond", [_, Function() as yes, Function() as no, *operands]:
                return join(*(self._call(node, x.node, operands, {}, first=3) for x in (yes, no)))
        for value in (*args, *keywords.values()):
            (self.iterate if text in ("map", "zip", "enumerate", "list", "tuple") else self.escape)(value)
        return TOP

    def _kinds(self, node: Any) -> list[str] | None:
        """Names of the classes of libraries in `A | B`; None if it is anything else."""
        match node:
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                kinds = self._kinds(left), self._kinds(right)
                return None if None in kinds else [*(kinds[0] or []), *(kinds[1] or [])]
            case ast.Name(symbol) if isinstance(self._node_of(symbol), ast.Assign):
                return self._kinds(self._node_of(symbol).value)
            case ast.Attribute(attr=name):
                return [name]
        return None

    def _is_instance(self, value: Any, kind: Any) -> Any:
        match value, kind:
            case Unseen(), _:
                return UNSEEN
            case Instance(symbol), Class(other):
                return Const(symbol == other)
            case Live(name), Library(text):
                return Const(name == text.rpartition(".")[2])
        return TOP
