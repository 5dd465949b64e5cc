"""Tidying: what folding leaves behind, e.g. variables nobody reads, `x = x`, calls that return their argument."""

import ast
from collections import Counter
from typing import Any

from benchback.tools.eject.analysis import Analysis
from benchback.tools.eject.fold import simple
from benchback.tools.eject.heirs import PLAIN
from benchback.tools.eject.link import bound_names, written_length
from benchback.tools.eject.prune import is_part, loaded, mentioned, removable
from benchback.tools.eject.source import Substitution, clone, hand_over_comments
from benchback.tools.eject.unpack import flatten, name_items, without_stars

BRIEF = 70
"""Letters of an expression that takes the place of two calls."""


DEFAULTS = [
    ("dot_general", "jax.lax.dot_general"),
    ("conv_general_dilated", "jax.lax.conv_general_dilated"),
    ("param_dtype", "jnp.float32"),
    ("method", "None"),
]
"""Arguments that a library would take itself."""


class Tidying(ast.NodeTransformer):
    """Tidies a definition; `changed` tells whether there was anything to do."""

    def __init__(self) -> None:
        self.changed = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="_replace"), args=[]):
                same = [x for x in node.keywords if ast.unparse(x.value) == f"{ast.unparse(owner)}.{x.arg}"]
                node.keywords = [x for x in node.keywords if x not in same]
                self.changed |= bool(same)
                if not node.keywords:
                    self.changed = True
                    return owner
            case ast.Call(func=ast.Attribute(value=ast.Name("jnp"), attr="asarray"), args=[array, ast.Constant(None)]):
                node.args, self.changed = [array], True
        if any(isinstance(x, ast.Starred) and isinstance(x.value, ast.Tuple) for x in node.args):
            node.args, self.changed = without_stars(node.args), True
        given = [x for x in node.keywords if (x.arg, ast.unparse(x.value)) in DEFAULTS]
        node.keywords = [x for x in node.keywords if x not in given]
        self.changed |= bool(given)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(value=ast.Tuple(elts=items), slice=ast.Constant(value=int(place))):
                if all(simple(x) for i, x in enumerate(items) if i != place):
                    self.changed = True
                    return items[place]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        self.changed |= name_items(node)
        self._copies(node)
        self._unread(node)
        node.body = self._block(self._at_once(node)) or [ast.Pass()]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        self.generic_visit(node)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                setattr(node, name, self._block(block))
        return node

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Statements up to the first that always returns, without assignments of names to themselves."""
        kept: list[ast.stmt] = []
        for x in block:
            if kept and isinstance(kept[-1], ast.Return | ast.Raise):
                self.changed = True
                break
            if isinstance(x, ast.Assign) and ast.unparse(x.targets[0]) == ast.unparse(x.value):
                self.changed = True
                continue
            self.changed |= flatten(x)
            match x:
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    kept_pairs = [
                        (t, v) for t, v in zip(targets, values, strict=False) if ast.unparse(t) != ast.unparse(v)
                    ]
                    if len(targets) == len(values) and len(kept_pairs) < len(targets):
                        self.changed = True
                        _assignment(x, kept_pairs)
            if isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant) and x.value.value is None:
                self.changed = True
                continue
            if isinstance(x, ast.With) and [ast.unparse(item) for item in x.items] == ["nullcontext()"]:
                self.changed = True
                hand_over_comments(x, x.body)
                kept += x.body
                continue
            if isinstance(x, ast.With) and not x.body and all(removable(item.context_expr) for item in x.items):
                self.changed = True
                continue
            kept.append(x)
        match kept:
            case [*_, ast.Assign(targets=[ast.Name(name)], value=value) as last, ast.Return(value=ast.Name(other))]:
                if name == other:
                    self.changed = True
                    result = ast.Return(value)
                    hand_over_comments(last, [result])
                    return [*kept[:-2], result]
        return kept

    def _at_once(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """The body with `a, b = f(x)` in the place of `c = f(x)` and `a, b = c`, if nothing else reads `c`."""
        kept: list[Any] = []
        read = loaded(node)
        x: Any
        for x in node.body:
            match [*kept[-1:], x]:
                case [ast.Assign(targets=[ast.Name(name)], value=value) as last, ast.Assign(value=ast.Name(other))]:
                    if name == other and read[name] == 1:
                        hand_over_comments(last, [x])
                        kept[-1], x.value, self.changed = x, value, True
                        continue
            kept.append(x)
        return kept

    def _copies(self, node: ast.FunctionDef) -> None:
        """Use the original of a variable that is only a copy of another."""
        copies = [x for y in node.body if not isinstance(y, ast.FunctionDef) for x in _copies_in(y)]
        if not copies:
            return
        nodes = list(ast.walk(node))
        stored = Counter(x.id for x in nodes if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
        stored.update(x.name for x in nodes if isinstance(x, ast.FunctionDef) and x is not node)
        stored.update(x.arg for x in nodes if isinstance(x, ast.arg))
        for name, other in copies:
            if stored[name] == 1 and stored[other] <= 1:
                for use in nodes:
                    if isinstance(use, ast.Name) and use.id == name and isinstance(use.ctx, ast.Load):
                        use.id = other
                self.changed = True

    def _unread(self, node: ast.FunctionDef) -> None:
        if any(isinstance(x, ast.FunctionDef) for x in node.body):
            names = [mentioned(x) for x in node.body]
            unread = [
                x
                for i, x in enumerate(node.body)
                if isinstance(x, ast.FunctionDef) and not any(x.name in y for y in names[:i] + names[i + 1 :])
            ]
            node.body = [x for x in node.body if x not in unread]
            self.changed |= bool(unread)
        gone = _Unread(loaded(node))
        node.body = [y for x in node.body for y in gone.kept(x)]
        self.changed |= gone.changed


def _copies_in(statement: ast.stmt) -> list[tuple[str, str]]:
    """Name and original of the copies that a statement makes."""
    found = []
    for x in ast.walk(statement) if hasattr(statement, "body") else [statement]:
        match x:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                starred = any(isinstance(target, ast.Starred) for target in targets)
                pairs = [] if starred else list(zip(targets, values, strict=False))
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, value)]
            case _:
                continue
        names = [(a.id, b.id) for a, b in pairs if isinstance(a, ast.Name) and isinstance(b, ast.Name)]
        found += [(name, other) for name, other in names if name != other]
    return found


class _Unread(ast.NodeTransformer):
    """Removes assignments to names that are never read."""

    def __init__(self, read: Counter[str]):
        self.read, self.changed = read, False

    def kept(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statement, without what is not needed."""
        result = self.visit(statement)
        return [] if result is None else [result]

    def visit_Assign(self, node: ast.Assign) -> Any:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value) if not self.read[name] and removable(value):
                self.changed = True
                return None
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = list(zip(targets, values, strict=False))
                kept = [(t, v) for t, v in pairs if not self._drop(t, v)]
                if len(targets) == len(values) and len(kept) < len(pairs):
                    self.changed = True
                    return _assignment(node, kept)
        return node

    def _drop(self, target: ast.expr, value: ast.expr) -> bool:
        return isinstance(target, ast.Name) and not self.read[target.id] and removable(value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return node


def _assignment(node: ast.Assign, pairs: list[tuple[ast.expr, ast.expr]]) -> ast.Assign | None:
    if not pairs:
        return None
    if len(pairs) == 1:
        node.targets, node.value = [pairs[0][0]], pairs[0][1]
    else:
        node.targets = [ast.Tuple([t for t, _ in pairs], ast.Store())]
        node.value = ast.Tuple([v for _, v in pairs], ast.Load())
    return node


class Inlining(ast.NodeTransformer):
    """Replaces calls of functions that only return an argument, a constant, or another call with the same arguments.

    A function that is called once and only returns an expression becomes that expression; its description, a comment.
    """

    def __init__(self, analysis: Analysis):
        self.changed = False
        self.called = {id(site.call): site.function for site in analysis.sites if site.plain}
        self.inherited = {id(x.call): x.function for x in analysis.sites if _is_inherited(x.call)}
        self.escaped = analysis.escaped
        self.top = {id(x.node): x.symbol for x in analysis.program.definitions.values()}
        self.mentions = sum((loaded(x.node) for x in analysis.program.definitions.values()), Counter())
        self.said: list[str] = []
        self.around: list[Any] = []

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node  # a call in it would become hard to read

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if method := self.inherited.get(id(node)):
            return self._of_method(node, method)
        function: Any = self.called.get(id(node))
        if not isinstance(function, ast.FunctionDef) or function in self.escaped or function.decorator_list:
            return node
        if id(function) not in self.top:
            return self._of_closure(node, function)
        result = _only_result(function)
        given = _given(function, node)
        if result is None or given is None or isinstance(result, ast.Lambda) or self._waits(result):
            return node
        if not self._worth_it(result, given):
            mentions = self.mentions[self.top[id(function)]]
            if mentions > 2 or not _fits(result, given) or (mentions == 2 and not _brief(result, given)):
                return node
            self.said += _first_line(function) if mentions == 1 and not is_part(self.top[id(function)]) else []
        self.changed = True
        return Substitution(given).visit(clone(result))

    def _of_method(self, node: ast.Call, method: ast.FunctionDef) -> ast.expr:
        """What an inherited method returns, in the place of the call of the one that overrides it."""
        result, given = _only_result(method), _given(method, node, skipped=1)
        if result is None or given is None or not _fits(result, given):
            return node
        self.changed = True
        return Substitution(given).visit(clone(result))

    def _of_closure(self, node: ast.Call, function: ast.FunctionDef) -> ast.expr:
        """What a brief function inside another returns, if its names mean the same at the call."""
        home = next((x for x in self.around if function in x.body), None)
        result, given = _only_result(function), _given(function, node)
        if home is None or result is None or given is None:
            return node
        inner = self.around[self.around.index(home) + 1 :]
        free = set(loaded(result)) - set(given)
        if free & set().union(*map(bound_names, inner)) or not _fits(result, given):
            return node
        if not _brief(result, given) and not isinstance(result, ast.Tuple):
            return node
        self.changed = True
        return Substitution(given).visit(clone(result))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.around.append(node)
        self.generic_visit(node)
        self.around.pop()
        return node

    def visit(self, node: ast.AST) -> Any:
        """Visit a node; comments found while a simple statement is visited go above it."""
        if not isinstance(node, ast.stmt) or hasattr(node, "body"):
            return super().visit(node)
        before, self.said = self.said, []
        result = super().visit(node)
        if self.said:
            node.comments = [*getattr(node, "comments", ()), *self.said]  # type: ignore[attr-defined]
        self.said = before
        return result

    def _waits(self, result: ast.expr) -> bool:
        """Whether the expression will be simpler soon: it contains a call that is replaced whatever its length."""
        for x in ast.walk(result):
            inner = self.called.get(id(x))
            if isinstance(inner, ast.FunctionDef) and id(inner) in self.top and not inner.decorator_list:
                value, given = _only_result(inner), _given(inner, x)  # type: ignore[arg-type]
                known = value is not None and given is not None and self._worth_it(value, given)
                if known and inner not in self.escaped:
                    return True
        return False

    def _worth_it(self, result: ast.expr, given: dict[str, ast.expr]) -> bool:
        if isinstance(result, ast.Name) and result.id in given:
            return True
        if not given:
            return True
        if isinstance(result, ast.Call) and [ast.unparse(x) for x in result.args] == list(given):
            return not result.keywords and isinstance(result.func, ast.Name)
        decided = {name for name, x in given.items() if isinstance(x, ast.Constant)}
        chosen = isinstance(result, ast.IfExp) and bool(decided & set(loaded(result.test)))
        return chosen and all(map(simple, given.values()))


def _brief(result: ast.expr, given: dict[str, ast.expr]) -> bool:
    return written_length(Substitution(given).visit(clone(result))) <= BRIEF


def _only_result(function: ast.FunctionDef) -> ast.expr | None:
    body = [x for x in function.body if not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))]
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None


def _is_inherited(call: Any) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr.startswith(PLAIN)


def _given(function: ast.FunctionDef, call: ast.Call, skipped: int = 0) -> dict[str, ast.expr] | None:
    """Parameter -> argument; None if a default, a star or a closure makes it more than that."""
    names = [x.arg for x in function.args.args][skipped:]
    plain = not (function.args.vararg or function.args.kwarg or function.args.kwonlyargs)
    starred = any(isinstance(x, ast.Starred) for x in call.args)
    given = dict(zip(names, call.args, strict=False)) | {x.arg or "": x.value for x in call.keywords}
    return given if plain and not starred and given.keys() == set(names) else None


def _first_line(function: ast.FunctionDef) -> list[str]:
    said = (ast.get_docstring(function) or "").partition("\n")[0].partition("; InputError")[0]
    return [f"# {said}" if said.endswith(".") else f"# {said}."] if said else []


def _fits(result: ast.expr, given: dict[str, ast.expr]) -> bool:
    """Whether putting arguments in place of parameters repeats no work and confuses no names."""
    uses = loaded(result)
    own = {x.arg for x in ast.walk(result) if isinstance(x, ast.arg)}
    own |= {x.id for x in ast.walk(result) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
    names = set().union(*(loaded(x) for x in given.values()))
    return not own & names and all(simple(x) or uses[name] <= 1 for name, x in given.items())
