"""Folding: expressions whose value is known become that value, and branches that are never taken go."""

import ast
from typing import Any

from benchback.tools.eject.link import Program, Scoped, symbol_of
from benchback.tools.eject.source import Substitution, clone, hand_over_comments
from benchback.tools.eject.values import (
    Cell,
    Class,
    Const,
    Function,
    Instance,
    Items,
    Library,
    Module,
    Named,
    Partial,
    Table,
    truth,
)


def constant(value: Any) -> ast.expr:
    """A literal of a known value."""
    if value == () and isinstance(value, tuple):
        return ast.Tuple([], ast.Load())
    node = ast.Constant(value)
    if isinstance(value, str) and '"' not in value and "\\" not in value:
        node.raw = f'"{value}"'  # type: ignore[attr-defined]
    return node


def simple(node: ast.expr) -> bool:
    """Whether an expression only names things, so that it may be left out, moved or repeated."""
    match node:
        case ast.Constant() | ast.Name() | ast.Lambda():
            return True
        case ast.Attribute(value=value) | ast.Starred(value=value):
            return simple(value)
        case ast.Tuple(elts=items):
            return all(map(simple, items))
        case ast.Subscript(value=value, slice=index):
            return simple(value) and simple(index)
        case ast.Compare(left=left, comparators=others):
            return all(map(simple, (left, *others)))
    return False


class Folding(Scoped):
    """Replaces what is known; `changed` tells whether anything was."""

    def __init__(self, program: Program, cells: dict[tuple[str, str], Any]):
        super().__init__()
        self.program, self.cells, self.changed = program, cells, False
        self.functions: list[Any] = []

    def _put(self, node: Any) -> Any:
        self.changed = True
        return node

    def inside(self, node: Any) -> Any:
        self.functions.append(node)
        super().inside(node)
        self.functions.pop()
        return node

    def _known(self, node: ast.expr) -> ast.expr | None:
        """What stands for the value of an expression, if it is known and something can."""
        match getattr(node, "known", None):
            case Const(value):
                return constant(value)
            case Named(literal) if isinstance(node, ast.Name) and node.id in self.program.definitions:
                return clone(literal)
            case Function(compiled=True):
                return None
            case Function(symbol=str(symbol)) | Class(symbol) | Instance(name=str(symbol)):
                return ast.Name(symbol, ast.Load())
            case Module(name):
                return ast.Name(symbol_of(name), ast.Load())
            case Function(node=ast.FunctionDef(name=name) as known) if self._in_sight(known):
                return ast.Name(name, ast.Load())
            case Library(text) if text.split(".")[0] in self.program.imports and not self.is_local(text.split(".")[0]):
                return ast.parse(text, mode="eval").body
        return None

    def _in_sight(self, function: ast.FunctionDef) -> bool:
        """Whether the name of a function inside another means it here."""
        for around, names in zip(reversed(self.functions), reversed(self.scopes), strict=True):
            if function.name in names:
                return isinstance(around, ast.FunctionDef) and function in around.body
        return False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self._known(node)
        if found is None or not isinstance(node.ctx, ast.Load) or ast.unparse(found) == node.id:
            return node
        if node.id in self.program.definitions and not isinstance(found, ast.Constant | ast.Subscript):
            return node
        return self._put(found)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        found = self._known(node)
        if found is not None and isinstance(node.ctx, ast.Load) and ast.unparse(found) == ast.unparse(node):
            return node
        if found is None or not isinstance(node.ctx, ast.Load):
            if isinstance(node.ctx, ast.Load) and (result := self._computed(node) or self._of_local_record(node)):
                return self._put(result)
            owner = getattr(node.value, "known", None)
            if isinstance(owner, Instance) and (other := self._stands_for(owner.symbol, node.attr)):
                self.changed, node.attr = True, other
            self.generic_visit(node)
            return node
        return self._put(found)

    def _stands_for(self, symbol: str, name: str) -> str | None:
        """The field that a property only returns."""
        for x in self.program.definitions[symbol].node.body:
            match x:
                case ast.FunctionDef(body=[*_, ast.Return(value=ast.Attribute(value=ast.Name("self"), attr=field))]):
                    if x.name == name and x.decorator_list and len(x.body) <= 2:
                        return field
        return None

    def _of_local_record(self, node: ast.Attribute) -> ast.expr | None:
        """The variable that a field of a record is made of, if both are of a function around and never change."""
        owner = getattr(node.value, "known", None)
        if not isinstance(node.value, ast.Name) or not isinstance(owner, Instance):
            return None
        name = node.value.id
        place = next((i for i in reversed(range(len(self.scopes))) if name in self.scopes[i]), None)
        if place is None or not isinstance(home := self.functions[place], ast.FunctionDef):
            return None
        made = [x.value for x in home.body if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == name]
        if len(made) != 1 or not isinstance(made[0], ast.Call) or ast.unparse(made[0].func) != owner.symbol:
            return None
        value = self._argument(made[0], owner.symbol, node.attr)
        if not isinstance(value, ast.Name) or any(value.id in scope for scope in self.scopes[place + 1 :]):
            return None
        stored = [x.id for x in ast.walk(home) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        return clone(value) if stored.count(name) + stored.count(value.id) <= 2 else None

    def _argument(self, call: ast.Call, symbol: str, name: str) -> ast.expr | None:
        """What a call that makes a record gives for one of its fields."""
        body = self.program.definitions[symbol].node.body
        names = [ast.unparse(x.target) for x in body if isinstance(x, ast.AnnAssign)]
        known = not call.keywords and name in names[: len(call.args)]
        return call.args[names.index(name)] if known else None

    def _computed(self, node: ast.Attribute) -> ast.expr | None:
        """What a property computes of fields, e.g. the product of two, written with the fields themselves."""
        owner = getattr(node.value, "known", None)
        if not isinstance(owner, Instance) or not isinstance(node.value, ast.Name):
            return None
        for x in self.program.definitions[owner.symbol].node.body:
            match x:
                case ast.FunctionDef(decorator_list=[ast.Name("property")], body=[*_, ast.Return(value=result)]):
                    short = isinstance(result, ast.BinOp) and simple(result.left) and simple(result.right)
                    if isinstance(result, ast.Call) and isinstance(getattr(result.func, "known", None), Library):
                        short = not result.keywords and all(map(simple, result.args))
                    if x.name == node.attr and len(x.body) <= 2 and short:
                        return Substitution({"self": node.value}).visit(clone(result))
        return None

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return self._decided(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return self._decided(node)

    def _decided(self, node: Any) -> ast.expr:
        known = getattr(node, "known", None)
        if isinstance(known, Const):
            return self._put(constant(known.value))
        self.generic_visit(node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        deciding = isinstance(node.op, ast.Or)
        kept = []
        for part in node.values:
            known = truth(getattr(part, "known", None))
            if known is None or part is node.values[-1] or known is deciding:
                kept.append(self.visit(part))
            if known is deciding:
                break
        if len(kept) == len(node.values):
            node.values = kept
            return node
        return self._put(kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        known = truth(getattr(node.test, "known", None))
        if known is None:
            self.generic_visit(node)
            return node
        return self._put(self.visit(node.body if known else node.orelse))

    def visit_If(self, node: ast.If) -> Any:
        known = truth(getattr(node.test, "known", None))
        if known is None:
            self.generic_visit(node)
            return node
        self.changed = True
        kept: list[ast.stmt] = []
        for statement in node.body if known else node.orelse:
            result = self.visit(statement)
            kept += result if isinstance(result, list) else [result] if result is not None else []
        hand_over_comments(node, kept)
        return kept

    def visit_For(self, node: ast.For) -> Any:
        if self._is_empty(node.iter):
            return self._put(None)
        self.generic_visit(node)
        return node

    def _is_empty(self, node: ast.expr) -> bool:
        """Whether it is known that a loop over this does nothing."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "enumerate":
            return self._is_empty(node.args[0])
        return getattr(node, "known", None) == Const(())

    def visit_Assert(self, node: ast.Assert) -> Any:
        if truth(getattr(node.test, "known", None)):
            return self._put(None)
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        match node.value:
            case ast.Call(func=ast.Attribute(value=owner, attr="set_value")):
                cell = getattr(owner, "known", None)
                if isinstance(cell, Cell) and isinstance(self.cells.get((cell.symbol, cell.field)), Const):
                    return self._put(None)
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        table, index = (getattr(x, "known", None) for x in (node.value, node.slice))
        if isinstance(table, Table) and isinstance(index, Const):
            for key, _, written in table.items:
                if key == index.value and self._global(written.node):
                    return self._put(clone(written.node))
        self.generic_visit(node)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        known = getattr(node, "known", None)
        if not any(isinstance(x, ast.FormattedValue) for x in node.values):
            return node  # written in pieces, each of them known
        if isinstance(known, Const) and "\n" not in getattr(node, "raw", ""):
            return self._put(constant(known.value))
        for place, part in enumerate(node.values):
            inner = getattr(part.value, "known", None) if isinstance(part, ast.FormattedValue) else None
            if isinstance(inner, Const) and isinstance(inner.value, str):
                self._put_into_text(node, f"{{{ast.unparse(part.value)}}}", inner.value)  # type: ignore[attr-defined]
                node.values[place] = ast.Constant(inner.value)
                self.changed = True
            elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Constant):  # a number
                node.values[place] = ast.Constant(str(part.value.value))
                if not any(isinstance(x, ast.FormattedValue) for x in node.values):
                    return self._put(constant("".join(x.value for x in node.values)))  # type: ignore[attr-defined]
        self.generic_visit(node)
        return node

    def _put_into_text(self, node: Any, old: str, new: str) -> None:
        """Change a placeholder in how a string is written, too; a string without any needs no prefix."""
        node.raw = getattr(node, "raw", "").replace(old, new)
        if sum(isinstance(x, ast.FormattedValue) for x in node.values) == 1:
            node.raw = node.raw.replace('f"', '"')

    def visit_Call(self, node: ast.Call) -> ast.expr:
        known = getattr(node, "known", None)
        if isinstance(known, Module | Library) or (isinstance(known, Const) and known.value is not None):
            found = self._known(node)
            assert found is not None
            return self._put(found)
        match node:
            case ast.Call(func=ast.Name("len"), args=[ast.expr() as counted]) if self._is_empty(counted):
                return self._put(ast.Constant(0))
            case ast.Call(func=ast.Name("getattr"), args=[owner, name]):
                attribute = getattr(name, "known", None)
                if isinstance(attribute, Const) and isinstance(attribute.value, str):
                    return self._put(ast.Attribute(self.visit(owner), attribute.value, ast.Load()))
        if (whole := self._whole(node)) is not None:
            return self._put(whole)
        node.args = [new for x in node.args for new in self._spread(x)]
        self.generic_visit(node)
        return node

    def _global(self, node: ast.AST) -> bool:
        """Whether an expression means the same everywhere in the program."""
        names = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
        return names <= self.program.definitions.keys() | self.program.imports.keys()

    def _whole(self, node: ast.Call) -> ast.Call | None:
        """`f(x, option=a)` for a call of `partial(f, option=a)`, if what is given means the same here."""
        match getattr(node.func, "known", None):
            case Partial(Function(symbol=str(symbol)), given):
                written = [ast.keyword(name, clone(x.node)) for name, _, x in given]
                if all(map(self._global, written)):
                    return ast.Call(ast.Name(symbol, ast.Load()), node.args, [*node.keywords, *written])
        return None

    def _spread(self, node: ast.expr) -> list[ast.expr]:
        """A starred tuple as its items where some of them are known; anything else as it is."""
        if not isinstance(node, ast.Starred) or not isinstance(node.value, ast.Name):
            return [node]
        known = getattr(node.value, "known", None)
        if known == Const(()):
            return self._put([])
        if not isinstance(known, Items) or not any(isinstance(x, Const) for x in known.items):
            return [node]
        written = self._written(node.value.id)
        if written is not None and len(written) == len(known.items):
            return self._put([clone(x) for x in written])
        if all(isinstance(x, Const) for x in known.items):
            return self._put([constant(x.value) for x in known.items])
        return [node]

    def _written(self, name: str) -> list[ast.expr] | None:
        """The items of a local tuple, if they mean the same wherever the tuple is used."""
        body = self.functions[-1]
        found = [x for x in ast.walk(body) if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == name]
        if len(found) != 1 or not isinstance(found[0].value, ast.Tuple) or not simple(found[0].value):
            return None
        roots = {x.id for x in ast.walk(found[0].value) if isinstance(x, ast.Name)}
        stored = [x.id for x in ast.walk(body) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        return None if roots & set(stored) else found[0].value.elts
