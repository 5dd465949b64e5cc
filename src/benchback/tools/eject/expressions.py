"""Expressions: what each kind of them is worth, given what is known of its parts."""

import ast
from collections.abc import Callable
from typing import Any

from benchback.tools.eject.calls import Calls
from benchback.tools.eject.knowledge import Frame
from benchback.tools.eject.values import (
    TOP,
    UNSEEN,
    Cell,
    Const,
    Function,
    Instance,
    Items,
    Library,
    Module,
    Table,
    Unknown,
    Unseen,
    Written,
    join,
    truth,
)


class Expressions(Calls):
    """The value of every kind of expression."""

    def see(self, node: Any, env: dict[str, Any], frame: Frame | None) -> Any:
        """The value of an expression, noted at the expression."""
        seen: Callable[..., Any] = getattr(self, f"_see_{type(node).__name__}", self._see_any)
        node.known = seen(node, env, frame)
        return node.known

    def _see_any(self, node: Any, env: dict[str, Any], frame: Frame | None) -> Any:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr | ast.keyword | ast.comprehension | ast.FormattedValue):
                self.escape(self.see(child, env, frame))
        return TOP

    def _see_Constant(self, node: ast.Constant, *_: Any) -> Any:
        return Const(node.value) if node.value is None or isinstance(node.value, bool | str) else TOP

    def _see_Name(self, node: ast.Name, env: dict[str, Any], frame: Frame | None) -> Any:
        if node.id in env:
            return env[node.id]
        while frame:
            if node.id in frame.own:
                return frame.variables.get(node.id, UNSEEN)
            frame = frame.parent
        if node.id in self.program.modules:
            return Module(self.program.modules[node.id])
        if node.id not in self.program.definitions:
            return Library(node.id)
        self.mention(node.id)
        return self.symbol_value(node.id)

    def _see_Attribute(self, node: ast.Attribute, env: dict[str, Any], frame: Frame | None) -> Any:
        match self.see(node.value, env, frame):
            case Module(name):
                symbol = self.program.member(name, node.attr)
                if symbol in self.program.modules:
                    return Module(self.program.modules[symbol])
                self.mention(symbol)
                return self.symbol_value(symbol)
            case Instance() as instance:
                return self.read(instance, node.attr)
            case Library(text):
                return Library(f"{text}.{node.attr}")
            case Unseen():
                return UNSEEN
        return TOP

    def _see_Tuple(self, node: ast.Tuple, env: dict[str, Any], frame: Frame | None) -> Any:
        items = [self.see(x, env, frame) for x in node.elts]
        if not items:
            return Const(())
        return TOP if any(isinstance(x, ast.Starred) for x in node.elts) else Items(tuple(items))

    def _see_Set(self, node: ast.Set, env: dict[str, Any], frame: Frame | None) -> Any:
        return Items(tuple(self.see(x, env, frame) for x in node.elts))

    def _see_Dict(self, node: ast.Dict, env: dict[str, Any], frame: Frame | None) -> Any:
        values = [self.see(x, env, frame) for x in node.values]
        keys = [self.see(x, env, frame) if x else None for x in node.keys]
        found: list[Any] = []
        for key, value, written in zip(keys, values, node.values, strict=True):
            if isinstance(key, Const) and isinstance(key.value, str):
                found.append((key.value, value, Written(written)))
            elif key is None and isinstance(value, Table):
                found += value.items
            else:
                for other in values:
                    self.escape(other)
                return TOP
        return Table(tuple(found))

    def _see_Subscript(self, node: ast.Subscript, env: dict[str, Any], frame: Frame | None) -> Any:
        table, index = self.see(node.value, env, frame), self.see(node.slice, env, frame)
        if isinstance(table, Unseen) or isinstance(index, Unseen):
            return UNSEEN
        if isinstance(table, Table) and isinstance(index, Const):
            return next((value for key, value, _ in table.items if key == index.value), TOP)
        if isinstance(table, Items) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return table.items[node.slice.value]
        self.iterate(table)
        return TOP

    def _see_Lambda(self, node: ast.Lambda, env: dict[str, Any], frame: Frame | None) -> Any:
        if frame:
            frame.nested.append(node)
        else:
            self.look_into(node, None)
        return Function(node)

    def _see_IfExp(self, node: ast.IfExp, env: dict[str, Any], frame: Frame | None) -> Any:
        test = self.see(node.test, env, frame)
        if isinstance(test, Unseen):
            return UNSEEN
        known = truth(test)
        if known is not None:
            return self.see(node.body if known else node.orelse, env, frame)
        values = self.see(node.body, env, frame), self.see(node.orelse, env, frame)
        joined = join(*values)
        if isinstance(joined, Unknown):
            for value in values:
                self.escape(value)
        return joined

    def _see_BoolOp(self, node: ast.BoolOp, env: dict[str, Any], frame: Frame | None) -> Any:
        deciding = isinstance(node.op, ast.Or)
        values = []
        for part in node.values:
            values.append(self.see(part, env, frame))
            if isinstance(values[-1], Unseen):
                return UNSEEN
            if truth(values[-1]) is deciding:
                break
        undecided = [x for x in values[:-1] if truth(x) is None]
        return TOP if undecided else values[-1]

    def _see_UnaryOp(self, node: ast.UnaryOp, env: dict[str, Any], frame: Frame | None) -> Any:
        value = self.see(node.operand, env, frame)
        if isinstance(value, Unseen):
            return UNSEEN
        known = truth(value)
        return Const(not known) if isinstance(node.op, ast.Not) and known is not None else TOP

    def _see_Compare(self, node: ast.Compare, env: dict[str, Any], frame: Frame | None) -> Any:
        left, *right = (self.see(x, env, frame) for x in (node.left, *node.comparators))
        if Unseen in map(type, (left, *right)):
            return UNSEEN
        if len(right) > 1:
            return TOP
        match node:
            case ast.Compare(left=ast.Attribute(attr="dtype"), ops=[ast.Eq()]) if isinstance(right[0], Library):
                return self.facts.dtypes.get(right[0].text, TOP)
        match node.ops[0], left, right[0]:
            case ((ast.Eq() | ast.Is()), Const(), Const()):
                return Const(left == right[0])
            case ((ast.NotEq() | ast.IsNot()), Const(), Const()):
                return Const(left != right[0])
            case ast.Is(), (Instance() | Function() | Items() | Cell()), Const(None):
                return Const(False)
            case ast.IsNot(), (Instance() | Function() | Items() | Cell()), Const(None):
                return Const(True)
            case (ast.In() | ast.NotIn()) as op, Const(), Items(items) if all(isinstance(x, Const) for x in items):
                return Const((left in items) is isinstance(op, ast.In))
        return TOP

    def _see_JoinedStr(self, node: ast.JoinedStr, env: dict[str, Any], frame: Frame | None) -> Any:
        parts = [self.see(x.value if isinstance(x, ast.FormattedValue) else x, env, frame) for x in node.values]
        plain = all(not isinstance(x, ast.FormattedValue) or x.format_spec is None for x in node.values)
        if plain and all(isinstance(x, Const) and isinstance(x.value, str) for x in parts):
            return Const("".join(x.value for x in parts))
        return TOP

    def _see_NamedExpr(self, node: ast.NamedExpr, env: dict[str, Any], frame: Frame | None) -> Any:
        value = self.see(node.value, env, frame)
        self.bind(node.target, value, env, frame)
        return value

    def _see_Starred(self, node: ast.Starred, env: dict[str, Any], frame: Frame | None) -> Any:
        value = self.see(node.value, env, frame)
        if isinstance(value, Instance):
            self.iterate(value)
        return value

    def _comprehension(self, node: Any, env: dict[str, Any], frame: Frame | None) -> Any:
        env = dict(env)
        for generator in node.generators:
            # What is done alike to every field does not depend on their places.
            alike = isinstance(generator.target, ast.Name)
            (self.escape if alike else self.iterate)(self.see(generator.iter, env, frame))
            self.bind(generator.target, TOP, env, None)
            for test in generator.ifs:
                self.see(test, env, frame)
        for part in (getattr(node, name, None) for name in ("elt", "key", "value")):
            if part is not None:
                self.escape(self.see(part, env, frame))
        return TOP

    _see_ListComp = _see_GeneratorExp = _see_DictComp = _see_SetComp = _comprehension
