"""The body of a function where it is called, with arguments in the place of parameters."""

import ast
from collections import Counter
from typing import Any

from benchback.tools.eject.fold import simple
from benchback.tools.eject.knowledge import default_of, parameters
from benchback.tools.eject.link import bound_names
from benchback.tools.eject.prune import is_scope, loaded, mentioned
from benchback.tools.eject.source import Substitution, clone
from benchback.tools.eject.values import Class


class Body:
    """The body of a function with the arguments of a call in the place of its parameters."""

    def __init__(self, function: ast.FunctionDef, call: ast.Call, host: list[Any], over: set[str], target: set[str]):
        """`over` are names that nothing reads after the call, `target` those that it or its statement gives anew."""
        self.function, self.call, self.host, self.over, self.target = function, call, host, over, target

    def spliced(self) -> list[Any] | None:
        """The statements, the last of them a Return; None if names would be confused."""
        given = self._given()
        if given is None:
            return None
        body = clone(statements_of(self.function))
        own = bound_names(self.function)
        inner = _bound_inside(self.function)
        outside = self._names_outside()
        stored = {name for name in given if name in stored_in(body)}
        free = set().union(*(loaded(x) for x in body)) - own
        if free & set().union(*(bound_names(x) for x in self.host if not _contains(x, self.function))):
            return None
        if any((set(loaded(x)) | {name}) & inner for name, x in given.items()):
            return None
        uses = sum((loaded(x) for x in body), Counter())
        inside = {name for x in _scopes(self.function) for name in names_in(x)}
        alone = {n for n, x in given.items() if uses[n] <= 1 and (len(body) == 1 or _operation(x)) and n not in inside}
        kept = {n: x for n, x in given.items() if n in stored or not (simple(x) or n in alone)}
        kept = {name: x for name, x in kept.items() if ast.unparse(x) != name}
        if any(not simple(x) or name in stored for name, x in given.items() if name in outside and name in kept):
            return None
        changed = {name for name, x in given.items() if name in stored and ast.unparse(x) == name}
        if changed - self.over - self.target:
            return None
        local = own - set(given)
        clashing = (local & outside - self.target) | (local & self.target & names_in(self.call))
        functions = {x.name for x in body if isinstance(x, ast.FunctionDef)}
        clashing |= set(functions_made(self.function)) if self.target else set()
        if clashing - functions or any(set(loaded(x)) & local - clashing for x in given.values()) or clashing & inner:
            return None
        prefix = min([self.function.name.strip("_"), *self.target], key=lambda x: (x == "make", len(x)))
        longer = {name: ast.Name(f"{prefix}_{name}", ast.Load()) for name in clashing}
        for x in body:
            if isinstance(x, ast.FunctionDef) and x.name in longer:
                x.name = longer[x.name].id
        replaced = Substitution({n: x for n, x in given.items() if n not in kept and ast.unparse(x) != n} | longer)
        body = [replaced.visit(x) for x in body]
        first = [ast.Assign([ast.Name(name, ast.Store())], x) for name, x in kept.items()]
        return [*first, *body]

    def _given(self) -> dict[str, ast.expr] | None:
        function, call = self.function, self.call
        if function.args.vararg or function.args.kwarg or any(isinstance(x, ast.Starred) for x in call.args):
            return None
        names = parameters(function)
        given = dict(zip(names, call.args, strict=False)) | {x.arg or "": x.value for x in call.keywords}
        for name in names:
            if name not in given and (default := default_of(function, name)) is not None:
                given[name] = default
        return given if given.keys() == set(names) else None

    def _names_outside(self) -> set[str]:
        """Names that mean something in the function around the call, functions inside it included."""
        host = self.host[-1]
        found = {x.arg for x in ast.walk(host.args) if isinstance(x, ast.arg)}
        return found.union(*(mentioned(x, self.function) for x in host.body)) - {"_"}


def functions_made(function: ast.FunctionDef) -> list[str]:
    """Functions inside a function of which it returns a record."""
    result: Any = getattr(function.body[-1], "value", None)
    if not isinstance(result, ast.Call) or not isinstance(getattr(result.func, "known", None), Class):
        return []
    own = {x.name for x in function.body if isinstance(x, ast.FunctionDef)}
    return [name for x in result.args if (name := ast.unparse(x)) in own]


def statements_of(function: ast.FunctionDef) -> list[Any]:
    """The body without its description."""
    said = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    return function.body[1:] if said else function.body


def walk_here(node: ast.AST) -> list[ast.AST]:
    """All nodes but those in functions inside."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return []
    return [node, *(x for child in ast.iter_child_nodes(node) for x in walk_here(child))]


def stored_in(body: list[Any]) -> set[str]:
    """Names that these statements assign to."""
    return {x.id for y in body for x in walk_here(y) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


def _bound_inside(function: ast.FunctionDef) -> set[str]:
    """Names that functions, lambdas and comprehensions inside a function bind."""
    return set().union(*map(bound_names, _scopes(function)))


def _scopes(function: ast.FunctionDef) -> list[Any]:
    """Functions, lambdas and comprehensions inside a function."""
    inner = [x for x in ast.walk(function) if x is not function]
    return [x for x in inner if is_scope(x)]


def _operation(node: ast.expr) -> bool:
    """Whether an expression is one operation on things that are only named."""
    return isinstance(node, ast.BinOp) and simple(node.left) and simple(node.right)


def _contains(node: ast.AST, other: ast.AST) -> bool:
    return any(x is other for x in ast.walk(node))


def names_in(node: ast.AST) -> set[str]:
    """Names in an expression or a statement."""
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
