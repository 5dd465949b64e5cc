"""Rewriting of definitions as they are read: what only a package needs, e.g. tables for plug-ins, is made plain."""

import ast
from collections import Counter
from typing import Any

from benchback.tools.eject.source import clone


def rewritten(node: Any) -> Any:
    """The definition without what only serves a package."""
    return _summarised(_without_class_variables(_written_out(_plain_table(node))))


def _plain_table(node: Any) -> Any:
    """`NETWORKS = Networks(backend, part, mlp=MLP)` as `NETWORKS = {"mlp": MLP}`: a file has no plug-ins."""
    call = getattr(node, "value", None)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Networks":
        names = [ast.Constant(keyword.arg) for keyword in call.keywords]
        node.value = ast.copy_location(ast.Dict(list(names), [keyword.value for keyword in call.keywords]), call)
        ast.fix_missing_locations(node)
    return node


def _written_out(node: Any) -> Any:
    """A function with `sizes = a, b` and `f(*sizes)` as one with `f(a, b)`: only then can single arguments go."""
    if not isinstance(node, ast.FunctionDef):
        return node
    stored = Counter(x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
    tuples = {
        x.targets[0].id: x.value.elts
        for x in ast.walk(node)
        if isinstance(x, ast.Assign)
        and isinstance(x.targets[0], ast.Name)
        and isinstance(x.value, ast.Tuple)
        and stored[x.targets[0].id] == 1
        and all(isinstance(item, ast.Attribute) for item in x.value.elts)
    }
    return _Spreading(tuples).visit(node)


def _without_class_variables(node: Any) -> Any:
    """A class with `tower: ClassVar[Any] = MLP` and `self.tower(...)` as one with `MLP(...)`: a file has no heirs."""
    if not isinstance(node, ast.ClassDef):
        return node
    named = {
        x.target.id: x.value
        for x in node.body
        if isinstance(x, ast.AnnAssign)
        and isinstance(x.target, ast.Name)
        and isinstance(x.value, ast.Name)
        and ast.unparse(x.annotation).startswith("ClassVar")
    }
    node.body = [x for x in node.body if not (isinstance(x, ast.AnnAssign) and ast.unparse(x.target) in named)]
    return _OfClass(named).visit(node)


def _summarised(node: Any) -> Any:
    """The definition with descriptions of one line: who wants to know more reads the code below them."""
    for x in ast.walk(node):
        if isinstance(x, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(x):
            said: Any = x.body[0]
            summary = " ".join((ast.get_docstring(x) or "").partition("\n\n")[0].split())
            said.value = text = ast.Constant(summary)
            text.raw = f'"""{summary}"""'  # type: ignore[attr-defined]
    return node


class _OfClass(ast.NodeTransformer):
    """Puts what a class variable names in the place of `self.variable`."""

    def __init__(self, named: dict[str, ast.Name]):
        self.named = named

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self.named:
            return clone(self.named[node.attr])
        return node


class _Spreading(ast.NodeTransformer):
    """Puts the items of named tuples in the place of `*name`."""

    def __init__(self, tuples: dict[str, list[ast.expr]]):
        self.tuples = tuples

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args = [new for x in node.args for new in self._items(x)]
        return node

    def _items(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) and node.value.id in self.tuples:
            return [clone(item) for item in self.tuples[node.value.id]]
        return [node]
