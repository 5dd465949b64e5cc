"""Arguments: parameters that nothing reads go, with what was passed for them; the rest get names of their own."""

import ast
import copy
from collections import Counter
from typing import Any

from benchback.tools.eject.analysis import Analysis
from benchback.tools.eject.knowledge import Site, default_of, parameters
from benchback.tools.eject.link import written_length
from benchback.tools.eject.prune import loaded, removable

LONG_CALL = 90
"""Letters of a call that would take several lines."""


class Parameters:
    """Parameters that their function does not read, at every call."""

    def __init__(self, analysis: Analysis):
        self.analysis = analysis
        self.sites: dict[Any, list[Site]] = {}
        for site in analysis.sites:
            self.sites.setdefault(site.function, []).append(site)

    def remove(self) -> bool:
        """Take them out; whether there were any."""
        changeable = [f for f in self.sites if f not in self.analysis.escaped and self._may_change(f)]
        for function in changeable:
            self._write_defaults(function)
        unread = {f: self._unread(f) for f in changeable}
        self._agree(unread)
        self._take_out(unread)
        named = [self._name_the_rest(function) for function in unread]
        named += [_name_the_keywords(function) for function in unread]
        named += [_give_by_place(function, self.sites[function]) for function in unread]
        return any(unread.values()) or any(named)

    def _may_change(self, function: Any) -> bool:
        name = getattr(function, "name", "")
        return name == "__init__" or not name.startswith("__")

    def _write_defaults(self, function: Any) -> None:
        """A number that every call leaves at its default is written where it is read."""
        positional = [x.arg for x in (*function.args.posonlyargs, *function.args.args)]
        for name in parameters(function):
            default = default_of(function, name)
            if isinstance(default, ast.Constant | ast.BinOp) and not _bound_within(function, name):
                place = positional.index(name) if name in positional else len(positional)
                if not any(_may_pass(site, name, place) for site in self.sites[function]):
                    _Written(name, default).visit_body(function)

    def _unread(self, function: Any) -> set[str]:
        body = function.body if isinstance(function.body, list) else [function.body]
        read = sum((loaded(x) for x in body), Counter())
        positional = [x.arg for x in (*function.args.posonlyargs, *function.args.args)]
        found = {name for name in parameters(function) if name not in read and name not in ("self", "_")}
        found -= {x.arg for x in (function.args.vararg, function.args.kwarg) if x}
        return {name for name in found if all(self._can_drop(x, positional, name) for x in self.sites[function])}

    def _can_drop(self, site: Site, positional: list[str], name: str) -> bool:
        place = positional.index(name) - site.skipped if name in positional else None
        args = site.call.args[site.first :]
        keyword = next((x for x in site.call.keywords if x.arg == name), None)
        if keyword is not None:
            return removable(keyword.value)
        if any(x.arg is None for x in site.call.keywords):
            return False
        if place is None:
            return True
        if any(isinstance(x, ast.Starred) for x in args[: place + 1]):
            return False
        return place >= len(args) or removable(args[place])

    def _agree(self, unread: dict[Any, set[str]]) -> None:
        """Functions given to one `cond` lose the same operands."""
        pairs: dict[int, list[Any]] = {}
        for function, sites in self.sites.items():
            for site in sites:
                if site.first:
                    pairs.setdefault(id(site.call), []).append(function)
        for _ in range(3):
            for functions in pairs.values():
                places = [{_place(f, name) for name in unread.get(f, ())} for f in functions]
                common = set.intersection(*places)
                for function in functions:
                    kept = {name for name in unread.get(function, ()) if _place(function, name) in common}
                    if function in unread:
                        unread[function] = kept

    def _take_out(self, unread: dict[Any, set[str]]) -> None:
        # Both functions of a `cond` share their operands, so places are collected before any is deleted.
        places: dict[int, set[int]] = {}
        calls: dict[int, Any] = {}
        for function, names in unread.items():
            for site in self.sites[function]:
                found = places.setdefault(id(site.call), set())
                calls[id(site.call)] = site.call
                found |= {_place(function, x) - site.skipped + site.first for x in names if _place(function, x) >= 0}
                site.call.keywords = [x for x in site.call.keywords if x.arg not in names]
        for key, call in calls.items():
            call.args = [x for place, x in enumerate(call.args) if place not in places[key]]
        for function, names in unread.items():
            self._take_out_of_types(function, {_place(function, x) for x in names})
            for name in names:
                _delete_parameter(function, name)

    def _take_out_of_types(self, function: Any, places: set[int]) -> None:
        """A field that holds the function, `draw: Callable[[Any, int], Any]`, declares the parameters that are left."""
        for definition in self.analysis.program.definitions.values():
            for field in ast.walk(definition.node):
                match field:
                    case ast.AnnAssign(
                        target=ast.Name(name),
                        annotation=ast.Subscript(ast.Name("Callable"), ast.Tuple([ast.List() as types, _])),
                    ) if name == getattr(function, "name", None) and len(types.elts) == len(function.args.args):
                        types.elts = [x for place, x in enumerate(types.elts) if place not in places]

    def _name_the_rest(self, function: Any) -> bool:
        """Give names to `*rest` where every call passes the same number of arguments for it; whether it was done."""
        if not function.args.vararg:
            return False
        rest = function.args.vararg.arg
        first = len(function.args.args)
        lengths = set()
        for site in self.sites[function]:
            args = site.call.args[site.first :]
            lengths.add(None if any(isinstance(x, ast.Starred) for x in args) else len(args) + site.skipped - first)
        uses = [x for x in ast.walk(function) if isinstance(x, ast.Name) and x.id == rest]
        starred = [x for x in ast.walk(function) if isinstance(x, ast.Starred) and ast.unparse(x.value) == rest]
        if len(lengths) != 1 or None in lengths or len(uses) != len(starred):
            return False
        names = self._names(function, rest, lengths.pop())
        function.args.vararg = None
        function.args.args += [ast.arg(name, None if isinstance(function, ast.Lambda) else _any()) for name in names]
        for call in (x for x in ast.walk(function) if isinstance(x, ast.Call)):
            call.args = [
                new
                for x in call.args
                for new in ([ast.Name(n, ast.Load()) for n in names] if any(x is s for s in starred) else [x])
            ]
        return True

    def _names(self, function: Any, rest: str, number: int) -> list[str]:
        for site in self.analysis.sites:
            for place, x in enumerate(site.call.args[site.first :]):
                inside = any(site.call is call for call in ast.walk(function))
                if inside and isinstance(x, ast.Starred) and ast.unparse(x.value) == rest:
                    taken = {x.arg for x in function.args.args}
                    names = [x.arg for x in site.function.args.args][place + site.skipped :][:number]
                    if len(names) == number and not taken & set(names):
                        return names
        return [f"{rest}{i}" for i in range(number)]


def _give_by_place(function: Any, sites: list[Site]) -> bool:
    """Let the one long call of a function give its arguments by place instead of by name; whether it was done."""
    call = sites[0].call
    names = [x.arg for x in function.args.args][sites[0].skipped :] + [x.arg for x in function.args.kwonlyargs]
    given = names[: len(call.args)] + [x.arg for x in call.keywords]
    plain = not function.args.vararg and not function.args.kwarg and not any(function.args.kw_defaults)
    starred = any(isinstance(x, ast.Starred) for x in call.args)
    if len(sites) > 1 or given != names or not call.keywords or not plain or starred or sites[0].first:
        return False
    if written_length(call) < LONG_CALL:
        return False
    call.args, call.keywords = [*call.args, *(x.value for x in call.keywords)], []
    function.args.args, function.args.kwonlyargs = [*function.args.args, *function.args.kwonlyargs], []
    function.args.kw_defaults = []
    return True


def _name_the_keywords(function: Any) -> bool:
    """Give names to `**data` where it is only asked for some of them, `data["name"]`; whether it was done."""
    if not function.args.kwarg:
        return False
    rest = function.args.kwarg.arg
    uses = [x for x in ast.walk(function) if isinstance(x, ast.Name) and x.id == rest]
    asked = [x for x in ast.walk(function) if isinstance(x, ast.Subscript) and ast.unparse(x.value) == rest]
    names = [str(x.slice.value) for x in asked if isinstance(x.slice, ast.Constant)]
    if len(names) < len(uses):
        return False
    function.args.kwarg = None
    function.args.args += [ast.arg(name, _any()) for name in dict.fromkeys(names)]
    _Asked(rest).visit(function)
    return True


class _Asked(ast.NodeTransformer):
    """Puts `name` in the place of `data["name"]`."""

    def __init__(self, rest: str):
        self.rest = rest

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Constant) and ast.unparse(node.value) == self.rest:
            return ast.Name(str(node.slice.value), ast.Load())
        return node


def _any() -> ast.expr:
    return ast.Name("Any", ast.Load())


class _Written(ast.NodeTransformer):
    """Writes an expression in the place of a name."""

    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_body(self, function: Any) -> None:
        """In the function's body alone."""
        if isinstance(function.body, list):
            function.body = [self.visit(x) for x in function.body]
        else:
            function.body = self.visit(function.body)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.value) if node.id == self.name else node


def _bound_within(function: Any, name: str) -> bool:
    """Whether the name is given another value in the body, or is a parameter of a function within."""
    body = function.body if isinstance(function.body, list) else [function.body]
    inside = [x for statement in body for x in ast.walk(statement)]
    stored = any(isinstance(x, ast.Name) and x.id == name and not isinstance(x.ctx, ast.Load) for x in inside)
    return stored or any(isinstance(x, ast.arg) and x.arg == name for x in inside)


def _may_pass(site: Site, name: str, place: int) -> bool:
    """Whether a call may give a value to the parameter of that name and place."""
    args = site.call.args[site.first :]
    by_place = len(args) > place - site.skipped or any(isinstance(x, ast.Starred) for x in args)
    return by_place or any(x.arg in (name, None) for x in site.call.keywords)


def _place(function: Any, name: str) -> int:
    names = [x.arg for x in function.args.args]
    return names.index(name) if name in names else -1


def _delete_parameter(function: Any, name: str) -> None:
    a = function.args
    for place, x in enumerate(a.args):
        if x.arg == name:
            defaulted = place - len(a.args) + len(a.defaults)
            if defaulted >= 0:
                del a.defaults[defaulted]
            del a.args[place]
            return
    for place, x in enumerate(a.kwonlyargs):
        if x.arg == name:
            del a.kwonlyargs[place], a.kw_defaults[place]
            return
