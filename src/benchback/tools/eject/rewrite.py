"""Rewriting of definitions as they are read: what only a package needs, e.g. tables for plug-ins, is made plain."""

import ast
from typing import Any

from benchback.tools.eject.source import clone
from benchback.tools.eject.spread import written_out


def rewritten(node: Any) -> Any:
    """The definition without what only serves a package."""
    return _summarised(_without_class_variables(_without_forwarding(written_out(_plain_table(node)))))


def _plain_table(node: Any) -> Any:
    """`NETWORKS = Networks(backend, part, mlp=MLP)` as `NETWORKS = {"mlp": MLP}`: a file has no plug-ins."""
    call = getattr(node, "value", None)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Networks":
        names = [ast.Constant(keyword.arg) for keyword in call.keywords]
        node.value = ast.copy_location(ast.Dict(list(names), [keyword.value for keyword in call.keywords]), call)
        ast.fix_missing_locations(node)
    return node


def _without_forwarding(node: Any) -> Any:
    """A record without properties like `obs` for `self.steps.obs`: they are for who does not know what it contains."""
    if isinstance(node, ast.ClassDef):
        node.body = [x for x in node.body if not _forwards(x)]
    return node


def _forwards(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef(
            name=name,
            decorator_list=[ast.Name("property")],
            body=[*_, ast.Return(value=ast.Attribute(value=ast.Attribute(value=ast.Name("self")), attr=attribute))],
        ):
            return name == attribute
    return False


def _without_class_variables(node: Any) -> Any:
    """A class with `tower: ClassVar[Any] = MLP` and `self.tower(...)` as one with `MLP(...)`: a file has no heirs."""
    if not isinstance(node, ast.ClassDef):
        return node
    named = {
        x.target.id: x.value
        for x in node.body
        if isinstance(x, ast.AnnAssign)
        and isinstance(x.target, ast.Name)
        and isinstance(x.value, ast.Name | ast.Constant)
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

    def __init__(self, named: dict[str, ast.Name | ast.Constant]):
        self.named = named

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in self.named:
            return clone(self.named[node.attr])
        return node
