"""Arguments that a function collects before it passes them are written where they are passed.

`sizes = a, b` and `f(*sizes)` become `f(a, b)`, likewise `**options`: only then can single arguments go.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchback.tools.eject.source import Substitution, clone, hand_over_comments

NAMING = (ast.Name, ast.Attribute)


def written_out(node: Any) -> Any:
    """A function, or the methods of a class, with such arguments written out; anything else as it is."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        node.body = [written_out(x) for x in node.body]
    if not isinstance(node, ast.FunctionDef):
        return node
    _join(node)
    stored = Counter(x.id for x in _own(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
    once = {name: x for y in _own(node) if (found := _named(y)) for name, x in [found] if stored[name] == 1}
    tuples = {name: x.elts for name, x in once.items() if isinstance(x, ast.Tuple) and _all(ast.Attribute, x.elts)}
    tables = {name: x for name, x in once.items() if isinstance(x, ast.Dict) and _all(ast.Constant, x.keys)}
    tables = {name: x for name, x in tables.items() if _all(NAMING, x.values)}
    _Spreading(tuples, tables).generic_visit(node)
    gone = tables.keys() - {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}
    node.body = [x for x in node.body if not ((found := _named(x)) and found[0] in gone)]
    return node


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, without functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef):
            yield child
            yield from _own(child)


def _named(node: ast.AST) -> tuple[str, ast.expr] | None:
    """The name and the value of an assignment."""
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=value) | ast.AnnAssign(target=ast.Name(name), value=value):
            return (name, value) if value is not None else None
    return None


def _all(kind: Any, nodes: Any) -> bool:
    return all(isinstance(x, kind) for x in nodes)


def _join(function: ast.FunctionDef) -> None:
    """Write `found = x, y` and `return f(a, *found)` as `return f(a, x, y)`, if that is all that `found` is for."""
    read = Counter(x.id for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load))
    kept: list[Any] = []
    for x in function.body:
        match [*kept[-1:], x]:
            case [
                ast.Assign(targets=[ast.Name(name)], value=ast.Tuple(elts=items)),
                ast.Return(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call),
            ] if read[name] == 1:
                place = next((i for i, y in enumerate(call.args) if _is_starred(y, name)), None)
                # The order in which things are computed stays the same.
                if place is not None and (_all(NAMING, items) or _all(NAMING, call.args[:place])):
                    call.args[place : place + 1] = items
                    hand_over_comments(kept.pop(), [x])
        kept.append(x)
    function.body = kept


def _is_starred(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) and node.value.id == name


class _Spreading(ast.NodeTransformer):
    """Puts what named tuples and dictionaries contain in the place of `*name` and `**name`, and writes out loops."""

    def __init__(self, tuples: dict[str, list[ast.expr]], tables: dict[str, ast.Dict]):
        self.tuples, self.tables = tuples, tables

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        own = {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
        own |= {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        tuples = {name: x for name, x in self.tuples.items() if name not in own}
        _Spreading(tuples, {name: x for name, x in self.tables.items() if name not in own}).generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args = [new for x in node.args for new in self._items(x)]
        node.keywords = [new for x in node.keywords for new in self._options(x)]
        return node

    def _items(self, node: ast.expr) -> list[ast.expr]:
        match node:
            case ast.Starred(value=ast.Name(name)) if name in self.tuples:
                return [clone(item) for item in self.tuples[name]]
            case ast.Starred(value=ast.GeneratorExp(elt=each, generators=[loop])):
                if isinstance(loop.iter, ast.Tuple) and isinstance(loop.target, ast.Name) and not loop.ifs:
                    return [Substitution({loop.target.id: item}).visit(clone(each)) for item in loop.iter.elts]
        return [node]

    def _options(self, node: ast.keyword) -> list[ast.keyword]:
        if node.arg is not None or not isinstance(node.value, ast.Name) or node.value.id not in self.tables:
            return [node]
        table = self.tables[node.value.id]
        pairs = zip(table.keys, table.values, strict=True)
        return [ast.keyword(key.value, clone(value)) for key, value in pairs]  # type: ignore[union-attr]
