"""Splicing: the statements of a short function that is called once take the place of the call.

Its description becomes a comment above them. What a function returns that only makes other functions, e.g. an optimiser
as a record of two, is spliced whatever its length: then the record can go, and the functions are called by name.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from benchback.tools.eject.analysis import Analysis
from benchback.tools.eject.body import Body, functions_made, names_in, statements_of, stored_in, walk_here
from benchback.tools.eject.knowledge import parameters
from benchback.tools.eject.link import PACKAGE, written_length
from benchback.tools.eject.prune import is_part, is_scope, loaded
from benchback.tools.eject.source import Substitution, clone, hand_over_comments, text_of
from benchback.tools.eject.values import Class

CHANGING = ("append", "extend", "pop", "update", "reset", "draw", "step", "set_value")
"""Methods that may change something, as do those of torch that end in an underscore."""
SHORT = 20
"""Lines of a body that is spliced."""
LONG_ARGUMENT = 40
"""Letters of an argument that gets a name."""
LONG = 62
"""Lines of a function into which nothing more is spliced."""


class Splicing(ast.NodeTransformer):
    """Splices what is short into the functions that call it; `changed` tells whether there was anything."""

    def __init__(self, analysis: Analysis, patient: bool):
        """If `patient`, functions wait until what they call themselves has been spliced into them."""
        self.analysis, self.patient, self.changed = analysis, patient, False
        self.called = {id(site.call): site.function for site in analysis.sites if site.plain}
        self.symbols = {id(x.node): x.symbol for x in analysis.program.definitions.values()}
        self.host: list[Any] = []
        self.gone: set[int] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if id(node) not in self.gone:
            self.host.append(node)
            self._unpack(node)
            node.body = self._spliced(node.body)
            self.host.pop()
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return node

    def _unpack(self, node: ast.FunctionDef) -> None:
        """Name the items of a tuple that a function gets as `*items`, after its parameters."""
        for call in (x for x in ast.walk(node) if isinstance(x, ast.Call) and x.args):
            function, last = self.called.get(id(call)), call.args[-1]
            if not isinstance(function, ast.FunctionDef) or not isinstance(last, ast.Starred) or function.args.vararg:
                continue
            items = ast.unparse(last.value)
            names = [x.arg for x in function.args.args][len(call.args) - 1 :]
            targets = [x for x in ast.walk(node) if isinstance(x, ast.Name) and x.id == items]
            plain = not any(isinstance(x, ast.Starred) for x in call.args[:-1]) and not call.keywords
            if plain and len(targets) == 2 and not set(names) & names_in(node) and self._may_go(function):
                stored = next((x for x in targets if isinstance(x.ctx, ast.Store)), None)
                if stored is not None:
                    _Exchange(stored, ast.Tuple([ast.Name(x, ast.Store()) for x in names], ast.Store())).visit(node)
                    call.args[-1:] = [ast.Name(x, ast.Load()) for x in names]
                    self.changed = True

    def _spliced(self, block: list[ast.stmt], later: list[ast.stmt] | None = None) -> list[ast.stmt]:
        """A block with calls spliced, given the statements that are executed after it."""
        later = later or []
        done: list[ast.stmt] = []
        for place, statement in enumerate(block):
            if isinstance(statement, ast.FunctionDef):
                done.append(self.visit(statement))
                continue
            for name in ("body", "orelse"):
                if isinstance(inner := getattr(statement, name, None), list):
                    repeated = [statement] if isinstance(statement, ast.For | ast.While) else []
                    setattr(statement, name, self._spliced(inner, [*repeated, *block[place + 1 :], *later]))
            done += self._before(statement, block, partial(_done_with, done, [*block[place + 1 :], *later]))
            done.append(statement)
        return done

    def _before(self, statement: ast.stmt, block: list[ast.stmt], free: Callable[[], set[str]]) -> list[ast.stmt]:
        """Statements in the place of the first call of the statement that can be spliced; it gets their result."""
        if isinstance(statement, ast.Expr) and (done := self._without_result(statement)):
            return done
        if not isinstance(statement, ast.Assign | ast.Return | ast.Expr) or statement.value is None:
            return []
        for call in _evaluated_first(statement.value):
            function = self.called.get(id(call))
            if function is None or not self._may_go(function):
                continue
            whole = call is statement.value and self._goes_on(statement)
            if block is not self.host[-1].body and any(map(_is_function, function.body)):
                continue
            if self._fits(function, whole):
                elsewhere = Counter(x.id for x in ast.walk(statement.value) if isinstance(x, ast.Name))
                elsewhere.subtract(x.id for x in ast.walk(call) if isinstance(x, ast.Name))
                over = free() - {name for name, number in elsewhere.items() if number}
                body = Body(function, call, self.host, over, over - names_in(call) | _target(statement)).spliced()
                if body is not None:
                    self.gone.add(id(function))
                    *before, last = body
                    before += self._put(statement, call, last.value)
                    if before and isinstance(statement, ast.Assign):
                        hand_over_comments(statement, before)
                        statement.comments = []  # type: ignore[attr-defined]
                    statement.apart = getattr(statement, "apart", False) and not before  # type: ignore[attr-defined]
                    known = isinstance(statement, ast.Return) and whole and functions_made(function)
                    if not known and not is_part(self.symbols.get(id(function), "")):
                        _describe(function, [*before, statement])
                    return before
        return []

    def _without_result(self, statement: ast.Expr) -> list[Any]:
        """The one statement of a function without arguments or result, in the place of its call."""
        function = self.called.get(id(statement.value))
        if not isinstance(function, ast.FunctionDef) or parameters(function) or len(statements_of(function)) > 1:
            return []
        only = clone(statements_of(function)[0]) if statements_of(function) else ast.Expr(ast.Constant(None))
        if not isinstance(only, ast.Assign | ast.Expr) or function in self.analysis.escaped:
            return []
        statement.value, self.changed = ast.Constant(None), True
        if isinstance(only, ast.Assign):
            _describe(function, [only])
        return [only]

    def _goes_on(self, statement: Any) -> bool:
        """Whether a record that the statement gets is returned at once, or only asked for its fields."""
        if isinstance(statement, ast.Return):
            return True
        match statement:
            case ast.Assign(targets=[ast.Name(name)]):
                asked = {id(x.value) for x in ast.walk(self.host[-1]) if isinstance(x, ast.Attribute)}
                uses = [x for x in ast.walk(self.host[-1]) if isinstance(x, ast.Name) and x.id == name]
                return sum(id(x) not in asked for x in uses) == 1
        return False

    def _put(self, statement: Any, call: ast.Call, result: ast.expr) -> list[ast.stmt]:
        """Put the result of a call in its place, or before the statement under a name if it is long."""
        self.changed = True
        before: list[ast.stmt] = []
        name = self._field(statement.value, call)
        if name and written_length(result) > LONG_ARGUMENT and name not in names_in(self.host[-1]):
            before, result = [ast.Assign([ast.Name(name, ast.Store())], result)], ast.Name(name, ast.Load())
        statement.value = _Exchange(call, result).visit(statement.value)
        return before

    def _field(self, node: ast.expr, call: ast.Call) -> str | None:
        """The name of the field that a call is the value of, if the expression makes a record."""
        made = getattr(getattr(node, "func", None), "known", None)
        if not isinstance(made, Class) or call not in node.args:  # type: ignore[attr-defined]
            return None
        init = self.analysis.method(made.symbol, "__init__")
        names = parameters(init)[1:] if init else list(self.analysis.declared(made.symbol))
        return names[node.args.index(call)]  # type: ignore[attr-defined]

    def _may_go(self, function: Any) -> bool:
        """Whether a function is called once, and its statements could stand elsewhere."""
        if function in self.analysis.escaped or not isinstance(function, ast.FunctionDef) or function.decorator_list:
            return False
        if any(function is x for x in self.host) or id(function) in self.gone or not _ends_once(function):
            return False
        if symbol := self.symbols.get(id(function)):
            return self.analysis.mentions[symbol] == 1
        home = next((x for x in self.host if function in x.body), None)
        return home is not None and loaded(home)[function.name] == 1

    def _called_in(self, function: ast.FunctionDef) -> list[Any]:
        """Functions outside it that a function calls, other than in an expression of its own scope."""
        inside = {id(x): x for x in ast.walk(function)}
        apart = {id(y) for x in inside.values() if is_scope(x) and not _is_function(x) for y in ast.walk(x)}
        called = [self.called.get(x) for x in inside if x not in apart]
        return [x for x in called if x is not None and id(x) not in inside]

    def _fits(self, function: ast.FunctionDef, whole: bool) -> bool:
        if self.patient and any(map(self._may_go, self._called_in(function))):
            return False
        made = functions_made(function)
        if _returns_function(function):
            return True
        if made and (whole or len(made) == len(function.body[-1].value.args)):  # type: ignore[attr-defined]
            return True
        lines, around = _height(statements_of(function)), [x for x in self.host[-1].body if not _is_function(x)]
        return not made and lines <= SHORT and _height(around) + lines <= LONG


def sink(analysis: Analysis) -> bool:
    """Make a record of functions where it is used, in the one function that gets it; whether there was any."""
    called = {id(site.call): site.function for site in analysis.sites}
    number = Counter(id(site.function) for site in analysis.sites)
    for site in analysis.sites:
        function, call = site.function, site.call
        plain = isinstance(function, ast.FunctionDef) and not (site.skipped or site.first or call.keywords)
        if plain and number[id(function)] == 1 and len(call.args) == len(function.args.args):
            for place, x in enumerate(call.args):
                if _makes_record(called.get(id(x))) and _sunk(function, call, place):
                    return True
    return False


def _makes_record(function: Any) -> bool:
    return isinstance(function, ast.FunctionDef) and _ends_once(function) and bool(functions_made(function))


def _sunk(function: ast.FunctionDef, call: ast.Call, place: int) -> bool:
    """Let a function compute an argument itself, if it gets all that is needed for that; whether it does."""
    names = {ast.unparse(x): y.arg for x, y in zip(call.args, function.args.args, strict=True)}
    made: Any = call.args[place]
    if not {x for x in names_in(made) if not x.startswith(f"{PACKAGE}__")} <= set(names):
        return False
    given = Substitution({a: ast.Name(b, ast.Load()) for a, b in names.items() if a.isidentifier()})
    statement = ast.Assign([ast.Name(function.args.args[place].arg, ast.Store())], given.visit(clone(made)))
    del call.args[place], function.args.args[place]
    function.body[-len(statements_of(function)) :] = [statement, *statements_of(function)]
    return True


class _Exchange(ast.NodeTransformer):
    """Puts one expression in the place of another."""

    def __init__(self, old: ast.expr, new: ast.expr):
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def _returns_function(function: ast.FunctionDef) -> bool:
    """Whether all that a function does is to make another."""
    body = statements_of(function)
    return len(body) == 2 and _is_function(body[0]) and ast.unparse(body[1]) == f"return {body[0].name}"


def _height(statements: list[Any]) -> int:
    """About as many lines as the statements take when they are formatted."""
    lines = re.sub(rf"\b{PACKAGE}\w*__", "", text_of(statements)).splitlines()
    return sum(1 + len(line) // 100 * 3 for line in lines)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef)


def _evaluated_first(node: ast.AST) -> list[ast.Call]:
    """Calls in an expression before which nothing is computed that could matter."""
    found: list[ast.Call] = []

    def walk(x: Any, clean: bool) -> bool:
        """Whether nothing so far matters to what comes after, given that it was so before."""
        if is_scope(x):
            return False
        sure: list[Any] = [x.test] if isinstance(x, ast.IfExp) else x.values[:1] if isinstance(x, ast.BoolOp) else []
        after = clean
        for child in sure or ast.iter_child_nodes(x):
            after = walk(child, after)
        if isinstance(x, ast.Call) and clean:
            found.append(x)
        return after and not sure and (not isinstance(x, ast.Call) or _only_computes(x))

    walk(node, True)
    return found


def _only_computes(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return not call.func.attr.endswith("_") and call.func.attr not in CHANGING
    return ast.unparse(call.func) in ("int", "float", "len", "max", "tuple", "list", "type")


def _done_with(before: list[ast.stmt], after: list[ast.stmt]) -> set[str]:
    """Names that earlier statements assign to and nothing reads later."""
    held = {x for y in before for z in ast.walk(y) if isinstance(z, ast.Lambda | ast.FunctionDef) for x in names_in(z)}
    return stored_in(before) - held - set().union(*map(names_in, after))


def _ends_once(function: ast.FunctionDef) -> bool:
    """Whether it returns at its end, only there, and is no generator."""
    body = statements_of(function)
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        return False
    if isinstance(body[-1].value, ast.Lambda):  # a function without a name of its own
        return False
    inner = [x for y in body[:-1] for x in walk_here(y)]
    return not any(isinstance(x, ast.Return | ast.Yield | ast.Raise | ast.Try) for x in inner)


def _target(statement: ast.stmt) -> set[str]:
    """Names that the statement assigns to."""
    return {name for x in getattr(statement, "targets", ()) for name in names_in(x)}


def _describe(function: ast.FunctionDef, statements: list[Any]) -> None:
    """Put the first line of a function's description above the statements."""
    said = (ast.get_docstring(function) or "").partition("\n")[0].partition("; InputError")[0]
    if said and statements and not getattr(statements[0], "comments", ()):
        statements[0].comments = [f"# {said}" if said.endswith(".") else f"# {said}."]
