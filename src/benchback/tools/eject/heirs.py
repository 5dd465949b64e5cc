"""Inheritance: a class with what it inherits from another of this package written into it. A file has no heirs.

A method that the class overrides and still calls, `super().policy(...)`, keeps a name of its own.
"""

import ast
from typing import Any

from benchback.tools.eject.source import clone

PLAIN = "plain_"
"""Begins the name of an inherited method beside the one that overrides it."""


def merged(heir: ast.ClassDef, base: ast.ClassDef) -> ast.ClassDef:
    """The heir as a class of its own; `base` has no base in this package."""
    new, base = clone(heir), clone(base)
    called = {name for x in ast.walk(new) if (name := _inherited(x))}
    calls = _Calls(called & {x.name for x in base.body if isinstance(x, ast.FunctionDef)}, base.bases)
    own = _parts([calls.visit(x) for x in new.body])
    inherited = _parts(base.body)
    said, parts = own.pop("", []), {}
    inherited.pop("", None)
    for name, statements in inherited.items():
        if name in calls.names:
            statements[0].name = PLAIN + name
            parts[PLAIN + name] = statements
        parts[name] = _overridden(statements, own.pop(name)) if name in own else statements
    parts |= own
    fields = [x for part in parts.values() for x in part if not isinstance(part[0], ast.FunctionDef)]
    for x in fields:
        x.apart = False
    methods = [x for part in parts.values() for x in part if isinstance(part[0], ast.FunctionDef)]
    new.bases, new.decorator_list, new.body = base.bases, base.decorator_list, [*said, *fields, *methods]
    return new


def _parts(body: list[Any]) -> dict[str, list[Any]]:
    """Name of a field or method -> its statement and what describes it; the description of the class under ""."""
    found: dict[str, list[Any]] = {}
    name = ""
    for x in body:
        if isinstance(x, ast.FunctionDef):
            name = x.name
        elif isinstance(x, ast.AnnAssign | ast.Assign):
            name = ast.unparse(x.target if isinstance(x, ast.AnnAssign) else x.targets[0])
        found.setdefault(name, []).append(x)
    return found


def _overridden(inherited: list[Any], own: list[Any]) -> list[Any]:
    """The heir's part in the place of the inherited one; a bare `name = value` keeps the annotation."""
    match inherited[0], own[0]:
        case ast.AnnAssign() as field, ast.Assign(value=value):
            field.value = value
            return inherited
    return own


def _inherited(node: ast.AST) -> str | None:
    """The name in `super().name`."""
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name("super"), args=[]), attr=name):
            return name
    return None


class _Calls(ast.NodeTransformer):
    """Names inherited methods as the merged class does."""

    def __init__(self, names: set[str], bases: list[ast.expr]):
        self.names, self.bases = names, [ast.unparse(base) for base in bases]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if (name := _inherited(node)) in self.names:
            return ast.copy_location(ast.Attribute(ast.Name("self", ast.Load()), f"{PLAIN}{name}", node.ctx), node)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        match node:
            # Written so to leave out the class between them, which is gone.
            case ast.Call(func=ast.Attribute(value=base, attr="__init__"), args=[ast.Name("self")]):
                if ast.unparse(base) in self.bases:
                    return ast.copy_location(ast.parse("super().__init__()", mode="eval").body, node)  # type: ignore[return-value]
        return node
