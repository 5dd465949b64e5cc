"""Tuples whose items are known: what is taken apart or starred is written out."""

import ast
from collections import Counter
from typing import Any

from benchback.tools.eject.prune import loaded
from benchback.tools.eject.source import clone


def without_stars(arguments: list[ast.expr]) -> list[ast.expr]:
    """Arguments with `a, b` in the place of `*(a, b)`."""
    return [new for x in arguments for new in (x.value.elts if _is_starred_tuple(x) else [x])]  # type: ignore[attr-defined]


def _is_starred_tuple(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple)


def flatten(statement: ast.stmt) -> bool:
    """Write `(a, b), c = (x, y), z` as `a, b, c = x, y, z`; whether it was done."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            inner = [_alike(*pair) for pair in zip(targets, values, strict=True)]
            if any(inner):
                pairs = list(zip(targets, values, inner, strict=True))
                targets[:] = [x for t, _, alike in pairs for x in (t.elts if alike else [t])]  # type: ignore[attr-defined]
                values[:] = [x for _, v, alike in pairs for x in (v.elts if alike else [v])]  # type: ignore[attr-defined]
                return True
    return False


def _alike(target: ast.expr, value: ast.expr) -> bool:
    """Whether both are tuples of so many items."""
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
        return False
    return not any(isinstance(x, ast.Starred) for x in (*target.elts, *value.elts))


def name_items(function: ast.FunctionDef) -> bool:
    """Put `b, c` in the place of `*rest` after `a, *rest = x, b, c`, if these only name things; whether it was done."""
    stored = Counter(x.id for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
    done = False
    for x in list(ast.walk(function)):
        match x:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                place = next((i for i, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
                if place is not None:
                    done |= _name_rest(function, x, place, len(values) - (len(targets) - place - 1), stored)
    return done


def _name_rest(function: ast.FunctionDef, statement: Any, place: int, end: int, stored: Counter[str]) -> bool:
    """Write out the starred target at `place`, which gets the values up to `end`; whether it was done."""
    targets, values = statement.targets[0].elts, statement.value.elts
    rest, items = ast.unparse(targets[place].value), values[place:end]
    spread = _Spread(rest, items)
    fixed = all(isinstance(item, ast.Name) and stored[item.id] <= 1 for item in items)
    if not fixed or stored[rest] != 1 or not spread.covers(function):
        return False
    spread.visit(function)
    kept = [x for x in targets if not isinstance(x, ast.Starred)], [*values[:place], *values[end:]]
    statement.targets = [kept[0][0] if len(kept[0]) == 1 else ast.Tuple(kept[0], ast.Store())]
    statement.value = kept[1][0] if len(kept[1]) == 1 else ast.Tuple(kept[1], ast.Load())
    return True


class _Spread(ast.NodeTransformer):
    """Puts items in the place of `*name`."""

    def __init__(self, name: str, items: list[ast.expr]):
        self.name, self.items = name, items

    def covers(self, node: ast.AST) -> bool:
        """Whether the name is read as `*name` only."""
        starred = [x for x in ast.walk(node) if self._is_it(x) and isinstance(x.ctx, ast.Load)]  # type: ignore[attr-defined]
        return len(starred) == loaded(node)[self.name]

    def _is_it(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) and node.value.id == self.name

    def _spread(self, nodes: list[ast.expr]) -> list[ast.expr]:
        return [new for x in nodes for new in (clone(self.items) if self._is_it(x) else [x])]

    def visit_Tuple(self, node: ast.Tuple) -> ast.Tuple:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.elts = self._spread(node.elts)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args = self._spread(node.args)
        return node
