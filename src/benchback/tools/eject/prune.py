"""Pruning: fields and definitions that nothing reads any more go, with what was passed for them."""

import ast
from collections import Counter
from typing import Any

from benchback.tools.eject.analysis import Analysis
from benchback.tools.eject.fold import simple
from benchback.tools.eject.link import Program, bound_names
from benchback.tools.eject.values import Class, Const, Instance, Library, Module

PURE_CALLS = ("getattr", "partial", "time.perf_counter", "eqx.field", "nnx.Variable", "jax.lax.cond")
"""Calls of libraries that may be left out if nobody needs their result."""
REPEATED = ("optax.GradientTransformationExtraArgs",)
"""Classes whose heirs in this package only tell what their fields are."""
CALLED = ("__call__", "forward")
"""Methods that a call of an instance means."""
TEXT = ""
"""Stands for the class of which a string may name an attribute."""
OF_ARRAYS = ("dtype", "shape", "ndim", "device")
"""Attributes that only arrays are asked for, where it is not known of what they are."""


def removable(node: ast.expr) -> bool:
    """Whether leaving an expression out changes nothing else."""
    if simple(node) or isinstance(getattr(node, "known", None), Const | Module):
        return True
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            pure = ast.unparse(func).startswith(("jnp.", *PURE_CALLS)) or isinstance(
                getattr(func, "known", None), Class
            )
            if isinstance(func, ast.Attribute) and func.attr == "any":  # of an array
                pure = removable(func.value)
            return pure and all(map(removable, (*args, *(x.value for x in keywords))))
        case ast.BinOp(left=left, right=right):
            return removable(left) and removable(right)
        case ast.Tuple(elts=items):
            return all(map(removable, items))
        case ast.IfExp(test=test, body=body, orelse=other):
            return all(map(removable, (test, body, other)))
        case ast.JoinedStr():
            return True
        case ast.Subscript(value=value, slice=ast.Slice(lower=first, upper=last)):
            return removable(value) and all(x is None or removable(x) for x in (first, last))
    return False


def is_part(symbol: str) -> bool:
    """Whether a definition is of the parts of this tool, whose descriptions are for who works on them."""
    return "__eject__parts__" in symbol


def is_scope(node: ast.AST) -> bool:
    """Whether a node has names of its own."""
    return isinstance(node, ast.FunctionDef | ast.Lambda) or hasattr(node, "generators")


def mentioned(node: ast.AST, but: ast.AST | None = None) -> set[str]:
    """Names mentioned in a node, without those that a function inside it binds for itself, and without `but`."""
    if node is but:
        return set()
    own = bound_names(node) if is_scope(node) else set()
    found = {node.id} if isinstance(node, ast.Name) else set()
    found = found.union(*(mentioned(child, but) for child in ast.iter_child_nodes(node))) - own
    return found | {node.name} if isinstance(node, ast.FunctionDef) else found


def loaded(node: ast.AST) -> Counter[str]:
    """How often each name is read."""
    return Counter(x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load))


class Fields:
    """Fields that nothing reads, in their class and wherever an instance is made."""

    def __init__(self, analysis: Analysis):
        self.analysis = analysis
        self.definitions = [analysis.program.definitions[x] for x in analysis.reached]
        self.read = {x for definition in self.definitions for x in attributes_read(definition.node)}
        self.called = {site.function for site in analysis.sites}
        self.classes = [x for x in self.definitions if isinstance(x.node, ast.ClassDef)]
        self.copies: list[Any] = [x for d in self.definitions for x in ast.walk(d.node) if _is_copy(x)]
        self.stores: dict[str, list[tuple[Any, ast.expr | None]]] = {}
        for definition in self.definitions:
            for name, value in stores_in(definition.node):
                self.stores.setdefault(name, []).append((definition, value))

    def remove(self) -> bool:
        """Take them out; whether there were any."""
        found = False
        for definition in self.definitions:
            if isinstance(definition.node, ast.ClassDef):
                found |= self._methods(definition.symbol, definition.node)
                known = self.analysis.facts.fields.get(definition.symbol, {})
                for name in self.analysis.declared(definition.symbol):
                    unread = name in known or not self._is_read(definition.symbol, name)
                    found |= unread and self._take_out(definition.symbol, definition.node, name)
        return found

    def _may_be_of(self, symbol: str, definition: Any) -> bool:
        """Whether what a definition assigns to may be a field of the class: methods of others assign to their own."""
        return definition.symbol == symbol or not isinstance(definition.node, ast.ClassDef)

    def _is_read(self, symbol: str, name: str, owners: tuple[str | None, ...] = (None, TEXT)) -> bool:
        return any((owner, name) in self.read for owner in (symbol, *owners))

    def _methods(self, symbol: str, node: ast.ClassDef) -> bool:
        def unread(x: ast.stmt) -> bool:
            if x in self.called or not isinstance(x, ast.FunctionDef):
                return False
            if x.name in CALLED:
                return symbol not in self.analysis.given_away
            if x.name.startswith("__") or x.name == "setup":
                return False
            # Libraries call methods by name, e.g. `apply(..., method="value")`, but read no properties.
            computed = any(ast.unparse(decorator) == "property" for decorator in x.decorator_list)
            return not self._is_read(symbol, x.name, (None,) if computed else (None, TEXT))

        kept = [x for x in node.body if not unread(x)]
        found = len(kept) < len(node.body)
        node.body = kept
        return found

    def _take_out(self, symbol: str, node: ast.ClassDef, name: str) -> bool:
        names = [x.target.id for x in node.body if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)]
        has_init = any(isinstance(x, ast.FunctionDef) and x.name == "__init__" for x in node.body)
        calls = {id(call): call for call, made in self.analysis.constructions if made == symbol}
        if sum(name in self.analysis.declared(x.symbol) for x in self.classes) == 1:
            calls |= {id(x): x for x in self.copies if any(keyword.arg == name for keyword in x.keywords)}
        calls = calls.values()
        place = names.index(name) if name in names and not has_init else None
        if any(ast.unparse(base) in REPEATED for base in node.bases):
            return False
        if symbol in self.analysis.iterated or not all(_can_drop_field(x, name, place) for x in calls):
            return False
        # Fields known from the outside are never assigned to; others of their name are none of theirs.
        known = name in self.analysis.facts.fields.get(symbol, {})
        stores = [] if known else [x for x in self.stores.get(name, []) if self._may_be_of(symbol, x[0])]
        if any(value is None or not removable(value) for _, value in stores):
            return False
        for call in calls:
            _drop_field(call, name, place)
        for definition, _ in stores:
            definition.node = _Stores(name).visit(definition.node)
        node.body = _without_field(node.body, name)
        return True


def _is_copy(node: Any) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_replace"


def attributes_read(node: Any) -> set[tuple[str | None, str]]:
    """(class, attribute) that a definition reads, None for a class that is not known.

    A string in it may be the name of an attribute: it is there with TEXT in the place of the class.
    """
    found: set[tuple[str | None, str]] = set()
    said: set[int] = set()
    for x in ast.walk(node):  # a statement before what it contains
        if isinstance(x, ast.Expr):
            said.add(id(x.value))
        elif isinstance(x, ast.Constant) and isinstance(x.value, str) and id(x) not in said:
            found.add((TEXT, x.value))
        elif isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Load):
            owner = getattr(x.value, "known", None)
            if isinstance(owner, Instance):
                found.add((owner.symbol, x.attr))
            elif not isinstance(owner, Library) and x.attr not in OF_ARRAYS:
                found.add((None, x.attr))
    return found


def _can_drop_field(call: ast.Call, name: str, place: int | None) -> bool:
    keyword = next((x for x in call.keywords if x.arg == name), None)
    if keyword is not None:
        return removable(keyword.value)
    if _is_copy(call):
        return True
    if place is None or ast.unparse(call.func) == "replace":
        return True
    if any(isinstance(x, ast.Starred) for x in call.args[: place + 1]):
        return False
    return place >= len(call.args) or removable(call.args[place])


def _drop_field(call: ast.Call, name: str, place: int | None) -> None:
    call.keywords = [x for x in call.keywords if x.arg != name]
    copied = _is_copy(call) or ast.unparse(call.func) == "replace"
    if place is not None and not copied and place < len(call.args):
        del call.args[place]


def _without_field(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    gone = False
    for x in body:
        said = isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant)
        if isinstance(x, ast.AnnAssign) and ast.unparse(x.target) == name:
            gone = True
        elif not (gone and said):
            kept.append(x)
            gone = False
    return kept


def stores_in(node: Any) -> list[tuple[str, ast.expr | None]]:
    """Attributes that a definition assigns to, with the value of each; None where it is not written."""
    found: list[tuple[str, ast.expr | None]] = []
    for x in ast.walk(node):
        if isinstance(x, ast.Assign):
            pairs = zip(*_pairs(x), strict=True)
            found += [(target.attr, value) for target, value in pairs if isinstance(target, ast.Attribute)]
        elif isinstance(x, ast.AugAssign | ast.For) and isinstance(x.target, ast.Attribute):
            found.append((x.target.attr, None))
    return found


class _Stores(ast.NodeTransformer):
    """Removes assignments to an attribute of that name."""

    def __init__(self, name: str):
        self.name = name

    def _is_it(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == self.name

    def visit_Assign(self, node: ast.Assign) -> Any:
        targets, values = _pairs(node)
        if not any(map(self._is_it, targets)):
            return node
        kept = [(t, v) for t, v in zip(targets, values, strict=True) if not self._is_it(t)]
        if not kept:
            return None
        if len(kept) == 1:
            node.targets, node.value = [kept[0][0]], kept[0][1]  # type: ignore[assignment]
        else:
            node.targets = [ast.Tuple([t for t, _ in kept], ast.Store())]
            node.value = ast.Tuple([v for _, v in kept], ast.Load())  # type: ignore[misc]
        return node


def _pairs(node: ast.Assign) -> tuple[list[ast.expr], list[ast.expr | None]]:
    """Targets of an assignment with the value of each; None where it is not written."""
    if len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
        targets = node.targets[0].elts
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(targets):
            return targets, [*node.value.elts]
        return targets, [None] * len(targets)
    return node.targets, [node.value] * len(node.targets)


def prune_definitions(program: Program, entry: str) -> bool:
    """Drop the definitions that the entry does not reach; whether there were any."""
    kept, todo = set(), [entry]
    while todo:
        symbol = todo.pop()
        if symbol in kept or symbol not in program.definitions:
            continue
        kept.add(symbol)
        definition = program.definitions[symbol]
        for part in (definition.node, *definition.riders):
            todo += [x.id for x in ast.walk(part) if isinstance(x, ast.Name)]
    gone = set(program.definitions) - kept
    for symbol in gone:
        del program.definitions[symbol]
    return bool(gone)
