"""Pruning: parameters, fields and definitions that nothing reads any more go, with what was passed for them."""

import ast
import re
from collections import Counter
from typing import Any

from benchback.tools.eject.analysis import Analysis
from benchback.tools.eject.fold import Substitution, simple
from benchback.tools.eject.knowledge import Site, parameters
from benchback.tools.eject.link import Program, bound_names, written_length
from benchback.tools.eject.source import clone
from benchback.tools.eject.values import Class, Const, Instance, Library, Module

PURE_CALLS = ("getattr", "time.perf_counter", "eqx.field", "nnx.Variable", "jax.lax.cond")
"""Calls of libraries that may be left out if nobody needs their result."""
REPEATED = ("optax.GradientTransformationExtraArgs",)
"""Classes whose heirs in this package only tell what their fields are."""
LONG_CALL = 90
"""Letters of a call that would take several lines."""
OF_ARRAYS = ("dtype", "shape", "ndim", "device")
"""Attributes that only arrays are asked for, where it is not known of what they are."""


def removable(node: ast.expr) -> bool:
    """Whether leaving an expression out changes nothing else."""
    if simple(node) or isinstance(getattr(node, "known", None), Const | Module):
        return True
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            pure = ast.unparse(func).startswith(("jnp.", *PURE_CALLS)) or isinstance(
                getattr(func, "known", None), Class
            )
            if isinstance(func, ast.Attribute) and func.attr == "any":  # of an array
                pure = removable(func.value)
            return pure and all(map(removable, (*args, *(x.value for x in keywords))))
        case ast.BinOp(left=left, right=right):
            return removable(left) and removable(right)
        case ast.Tuple(elts=items):
            return all(map(removable, items))
        case ast.IfExp(test=test, body=body, orelse=other):
            return all(map(removable, (test, body, other)))
        case ast.JoinedStr():
            return True
        case ast.Subscript(value=value, slice=ast.Slice(lower=first, upper=last)):
            return removable(value) and all(x is None or removable(x) for x in (first, last))
    return False


def is_part(symbol: str) -> bool:
    """Whether a definition is of the parts of this tool, whose descriptions are for who works on them."""
    return "__eject__parts__" in symbol


def is_scope(node: ast.AST) -> bool:
    """Whether a node has names of its own."""
    return isinstance(node, ast.FunctionDef | ast.Lambda) or hasattr(node, "generators")


def mentioned(node: ast.AST, but: ast.AST | None = None) -> set[str]:
    """Names mentioned in a node, without those that a function inside it binds for itself, and without `but`."""
    if node is but:
        return set()
    own = bound_names(node) if is_scope(node) else set()
    found = {node.id} if isinstance(node, ast.Name) else set()
    found = found.union(*(mentioned(child, but) for child in ast.iter_child_nodes(node))) - own
    return found | {node.name} if isinstance(node, ast.FunctionDef) else found


def loaded(node: ast.AST) -> Counter[str]:
    """How often each name is read."""
    return Counter(x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load))


class Parameters:
    """Parameters that their function does not read, at every call."""

    def __init__(self, analysis: Analysis):
        self.analysis = analysis
        self.sites: dict[Any, list[Site]] = {}
        for site in analysis.sites:
            self.sites.setdefault(site.function, []).append(site)

    def remove(self) -> bool:
        """Take them out; whether there were any."""
        unread = {f: self._unread(f) for f in self.sites if f not in self.analysis.escaped and self._may_change(f)}
        self._agree(unread)
        self._take_out(unread)
        named = [self._name_the_rest(function) for function in unread]
        named += [_name_the_keywords(function) for function in unread]
        named += [_give_by_place(function, self.sites[function]) for function in unread]
        return any(unread.values()) or any(named)

    def _may_change(self, function: Any) -> bool:
        name = getattr(function, "name", "")
        return name == "__init__" or not name.startswith("__")

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
            for name in names:
                _delete_parameter(function, name)

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


class Fields:
    """Fields that nothing reads, in their class and wherever an instance is made."""

    def __init__(self, analysis: Analysis):
        self.analysis = analysis
        self.definitions = [analysis.program.definitions[x] for x in analysis.reached]
        self.read = {x for definition in self.definitions for x in attributes_read(definition.node)}
        self.classes = [x for x in self.definitions if isinstance(x.node, ast.ClassDef)]
        self.copies: list[Any] = [x for d in self.definitions for x in ast.walk(d.node) if _is_copy(x)]
        self.stores: dict[str, list[tuple[Any, ast.expr | None]]] = {}
        for definition in self.definitions:
            for name, value in stores_in(definition.node):
                self.stores.setdefault(name, []).append((definition, value))

    def remove(self) -> bool:
        """Take them out; whether there were any."""
        found = False
        for definition in self.definitions:
            if isinstance(definition.node, ast.ClassDef):
                found |= self._methods(definition.symbol, definition.node)
                known = self.analysis.facts.fields.get(definition.symbol, {})
                for name in self.analysis.declared(definition.symbol):
                    unread = name in known or not self._is_read(definition.symbol, name)
                    found |= unread and self._take_out(definition.symbol, definition.node, name)
        return found

    def _is_read(self, symbol: str, name: str) -> bool:
        return (symbol, name) in self.read or (None, name) in self.read

    def _methods(self, symbol: str, node: ast.ClassDef) -> bool:
        def unread(x: ast.stmt) -> bool:
            if not isinstance(x, ast.FunctionDef) or _called_by_others(x.name):
                return False
            return not self._is_read(symbol, x.name)

        kept = [x for x in node.body if not unread(x)]
        found = len(kept) < len(node.body)
        node.body = kept
        return found

    def _take_out(self, symbol: str, node: ast.ClassDef, name: str) -> bool:
        names = [x.target.id for x in node.body if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)]
        has_init = any(isinstance(x, ast.FunctionDef) and x.name == "__init__" for x in node.body)
        calls = {id(call): call for call, made in self.analysis.constructions if made == symbol}
        if sum(name in self.analysis.declared(x.symbol) for x in self.classes) == 1:
            calls |= {id(x): x for x in self.copies if any(keyword.arg == name for keyword in x.keywords)}
        calls = calls.values()
        place = names.index(name) if name in names and not has_init else None
        if any(ast.unparse(base) in REPEATED for base in node.bases):
            return False
        if symbol in self.analysis.iterated or not all(_can_drop_field(x, name, place) for x in calls):
            return False
        # Fields known from the outside are never assigned to; others of their name are none of theirs.
        known = name in self.analysis.facts.fields.get(symbol, {})
        stores = [] if known else self.stores.get(name, [])
        if any(value is None or not removable(value) for _, value in stores):
            return False
        for call in calls:
            _drop_field(call, name, place)
        for definition, _ in stores:
            definition.node = _Stores(name).visit(definition.node)
        node.body = _without_field(node.body, name)
        return True


def _is_copy(node: Any) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_replace"


def _called_by_others(name: str) -> bool:
    return name.startswith("__") or name in ("setup", "forward")


def attributes_read(node: Any) -> set[tuple[str | None, str]]:
    """(class, attribute) that a definition reads, None for a class that is not known.

    A string in it may be the name of an attribute.
    """
    found: set[tuple[str | None, str]] = set()
    said: set[int] = set()
    for x in ast.walk(node):  # a statement before what it contains
        if isinstance(x, ast.Expr):
            said.add(id(x.value))
        elif isinstance(x, ast.Constant) and isinstance(x.value, str) and id(x) not in said:
            found.add((None, x.value))
        elif isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Load):
            owner = getattr(x.value, "known", None)
            if isinstance(owner, Instance):
                found.add((owner.symbol, x.attr))
            elif not isinstance(owner, Library) and x.attr not in OF_ARRAYS:
                found.add((None, x.attr))
    return found


def _can_drop_field(call: ast.Call, name: str, place: int | None) -> bool:
    keyword = next((x for x in call.keywords if x.arg == name), None)
    if keyword is not None:
        return removable(keyword.value)
    if _is_copy(call):
        return True
    if place is None or ast.unparse(call.func) == "replace":
        return True
    if any(isinstance(x, ast.Starred) for x in call.args[: place + 1]):
        return False
    return place >= len(call.args) or removable(call.args[place])


def _drop_field(call: ast.Call, name: str, place: int | None) -> None:
    call.keywords = [x for x in call.keywords if x.arg != name]
    copied = _is_copy(call) or ast.unparse(call.func) == "replace"
    if place is not None and not copied and place < len(call.args):
        del call.args[place]


def _without_field(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    gone = False
    for x in body:
        said = isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant)
        if isinstance(x, ast.AnnAssign) and ast.unparse(x.target) == name:
            gone = True
        elif not (gone and said):
            kept.append(x)
            gone = False
    return kept


def stores_in(node: Any) -> list[tuple[str, ast.expr | None]]:
    """Attributes that a definition assigns to, with the value of each; None where it is not written."""
    found: list[tuple[str, ast.expr | None]] = []
    for x in ast.walk(node):
        if isinstance(x, ast.Assign):
            pairs = zip(*_pairs(x), strict=True)
            found += [(target.attr, value) for target, value in pairs if isinstance(target, ast.Attribute)]
        elif isinstance(x, ast.AugAssign | ast.For) and isinstance(x.target, ast.Attribute):
            found.append((x.target.attr, None))
    return found


class _Stores(ast.NodeTransformer):
    """Removes assignments to an attribute of that name."""

    def __init__(self, name: str):
        self.name = name

    def _is_it(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == self.name

    def visit_Assign(self, node: ast.Assign) -> Any:
        targets, values = _pairs(node)
        if not any(map(self._is_it, targets)):
            return node
        kept = [(t, v) for t, v in zip(targets, values, strict=True) if not self._is_it(t)]
        if not kept:
            return None
        if len(kept) == 1:
            node.targets, node.value = [kept[0][0]], kept[0][1]  # type: ignore[assignment]
        else:
            node.targets = [ast.Tuple([t for t, _ in kept], ast.Store())]
            node.value = ast.Tuple([v for _, v in kept], ast.Load())  # type: ignore[misc]
        return node


def _pairs(node: ast.Assign) -> tuple[list[ast.expr], list[ast.expr | None]]:
    """Targets of an assignment with the value of each; None where it is not written."""
    if len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
        targets = node.targets[0].elts
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == len(targets):
            return targets, [*node.value.elts]
        return targets, [None] * len(targets)
    return node.targets, [node.value] * len(node.targets)


class Unions(ast.NodeTransformer):
    """Takes classes of which there are no instances out of annotations like `A | B`."""

    def __init__(self, analysis: Analysis):
        made = {symbol for _, symbol in analysis.constructions}
        made |= {analysis.owners[x.function] for x in analysis.sites if x.function in analysis.owners}
        records = (x for x in analysis.reached if isinstance(analysis.program.definitions[x].node, ast.ClassDef))
        self.empty = set(records) - made
        self.changed = False

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(node.op, ast.BitOr) and isinstance(one, ast.Name) and one.id in self.empty:
                self.changed = True
                return other
        return node


class Wrappers(ast.NodeTransformer):
    """Puts the value in the place of a record that has nothing but it."""

    def __init__(self, analysis: Analysis):
        self.analysis, self.changed = analysis, False
        self.read = {
            x for symbol in analysis.reached for x in attributes_read(analysis.program.definitions[symbol].node)
        }
        self.only = {symbol: field for symbol in analysis.reached if (field := self._only_field(symbol))}

    def _only_field(self, symbol: str) -> ast.AnnAssign | None:
        node = self.analysis.program.definitions[symbol].node
        if not isinstance(node, ast.ClassDef) or [ast.unparse(x) for x in node.bases] != ["NamedTuple"]:
            return None
        fields = [x for x in node.body if not isinstance(x, ast.Expr)]
        made = [call for call, of in self.analysis.constructions if of == symbol]
        single = len(fields) == 1 and isinstance(fields[0], ast.AnnAssign) and symbol not in self.analysis.iterated
        if not single or not all(len(x.args) == 1 and not x.keywords for x in made):
            return None
        return None if (None, ast.unparse(fields[0].target)) in self.read else fields[0]  # type: ignore[attr-defined]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id in self.only:
            self.changed = True
            return self.visit(node.args[0])
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        owner = getattr(node.value, "known", None)
        self.generic_visit(node)
        if isinstance(owner, Instance) and owner.symbol in self.only:
            self.changed = True
            return node.value
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        if any(self.analysis.program.definitions[symbol].node is node for symbol in self.only):
            return node
        body: list[ast.stmt] = []
        for x in node.body:
            body.append(x)
            if isinstance(x, ast.AnnAssign) and isinstance(x.annotation, ast.Name) and x.annotation.id in self.only:
                body.append(self._description(x, x.annotation.id))
        node.body = body
        self.generic_visit(node)
        return node

    def _description(self, field: ast.AnnAssign, symbol: str) -> ast.stmt:
        """What is said of the record, of the field that has its value."""
        said = ast.get_docstring(self.analysis.program.definitions[symbol].node) or ""
        inner, outer = ast.unparse(self.only[symbol].target), ast.unparse(field.target)
        return ast.Expr(ast.Constant(re.sub(rf"\b{inner}\b", outer, said)))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.only:
            self.changed = True
            return clone(self.only[node.id].annotation)
        return node


def without_bare_annotations(node: Any) -> Any:
    """A class of NNX without annotations of what its `__init__` sets."""
    if isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("nnx.") for base in node.bases):
        made = any(isinstance(x, ast.FunctionDef) and x.name == "__init__" for x in node.body)
        node.body = [x for x in node.body if not (made and isinstance(x, ast.AnnAssign) and x.value is None)]
    return node


def replace_by_bases(program: Program) -> None:
    """Name the base in the place of a class that only repeats it."""
    for symbol, definition in list(program.definitions.items()):
        node = definition.node
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) in REPEATED for base in node.bases):
            for other in program.definitions.values():
                other.node = Substitution({symbol: node.bases[0]}).visit(other.node)
            del program.definitions[symbol]


def prune_definitions(program: Program, entry: str) -> bool:
    """Drop the definitions that the entry does not reach; whether there were any."""
    kept, todo = set(), [entry]
    while todo:
        symbol = todo.pop()
        if symbol in kept or symbol not in program.definitions:
            continue
        kept.add(symbol)
        definition = program.definitions[symbol]
        for part in (definition.node, *definition.riders):
            todo += [x.id for x in ast.walk(part) if isinstance(x, ast.Name)]
    gone = set(program.definitions) - kept
    for symbol in gone:
        del program.definitions[symbol]
    return bool(gone)
