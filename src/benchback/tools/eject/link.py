"""Linking: the modules that an implementation is spread over become one list of definitions.

Every top-level definition gets a symbol, unique over all modules, and every mention of it is renamed to that symbol; a
module that is passed as a value (`math`) is a symbol too. Annotations lose what only this package understands: shapes,
and the roles of a State's fields. Definitions are read when they are first mentioned: what nobody mentions is left out.
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import benchback
from benchback.tools.eject.heirs import merged
from benchback.tools.eject.rewrite import rewritten
from benchback.tools.eject.source import parse

PACKAGE = benchback.__name__
ROOT = Path(benchback.__file__).parent


@dataclass
class Definition:
    """A top-level definition, and what belongs to it."""

    symbol: str
    module: str
    name: str
    node: Any
    """A FunctionDef, a ClassDef, or an Assign or AnnAssign of one name."""
    riders: list[ast.stmt] = field(default_factory=list)
    """Statements that go with it: a string that describes it, a registration with it."""


@dataclass(frozen=True)
class Import:
    """An import of a library: `import module as alias`, or `from module import name as alias`."""

    module: str
    name: str | None
    alias: str


@dataclass
class Program:
    """Definitions by symbol, in the order in which they were found."""

    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
    """Alias -> import, of every library that was mentioned."""
    modules: dict[str, str] = field(default_factory=dict)
    """Symbol -> name, of modules that are passed as values."""
    member: Any = None
    """(module, name) -> symbol of a member of a module."""


def module_path(module: str) -> Path | None:
    """The file of a module, found without importing it; None if there is none."""
    base = ROOT.joinpath(*module.split(".")[1:])
    return next((x for x in (base.with_suffix(".py"), base / "__init__.py") if x.exists()), None)


def symbol_of(module: str, name: str = "") -> str:
    """The symbol of a definition, or of a module."""
    return "__".join([*module.split("."), *filter(None, [name])])


def written_length(node: ast.AST) -> int:
    """Letters of an expression under the names that it will have."""
    return len(re.sub(rf"\b{PACKAGE}\w*__", "", ast.unparse(node)))


class Linker:
    """Reads modules and links definitions into a Program."""

    def __init__(self, array: str, replaced: dict[str, str], sources: dict[str, str] | None = None):
        """`array` is the annotation of an array, `Array` or `Tensor`.

        `replaced` maps a qualified name to the one used in its place, `sources` a module to a text for its file.
        """
        self.array, self.replaced, self.sources = array, replaced, sources or {}
        self.program = Program(member=self.resolve)
        self.namespaces: dict[str, dict[str, Any]] = {}
        self.waiting: list[Definition] = []

    def link(self, module: str, name: str) -> str:
        """The symbol of a definition, linked with everything that it mentions."""
        symbol = self.resolve(module, name)
        while self.waiting:
            definition = self.waiting.pop()
            renaming = _Renaming(self, definition.module)
            definition.node = renaming.visit(definition.node)
            definition.riders = [renaming.visit(rider) for rider in definition.riders]
        return symbol

    def resolve(self, module: str, name: str) -> str:
        """The symbol of `name` in a module of this package, which may have imported it."""
        module, _, name = self.replaced.get(f"{module}.{name}", f"{module}.{name}").rpartition(".")
        if module == "builtins":
            return name
        found = self.namespace(module).get(name)
        if isinstance(found, ast.stmt):
            return self._define(module, name, found)
        if isinstance(found, tuple):
            return self.resolve(*found)
        if isinstance(found, Import):
            return self.external(found)
        if found is None and module_path(f"{module}.{name}"):
            return self.module_symbol(f"{module}.{name}")
        raise LookupError(f"{module} has no {name}")

    def module_symbol(self, module: str) -> str:
        """The symbol of a module that is passed as a value."""
        symbol = symbol_of(module)
        self.program.modules[symbol] = module
        return symbol

    def external(self, found: Import) -> str:
        """The alias of a library's name, noted as needed."""
        known = self.program.imports.setdefault(found.alias, found)
        if known != found:
            raise LookupError(f"{found.alias} is {known.module} and {found.module}")
        return found.alias

    def namespace(self, module: str) -> dict[str, Any]:
        """Name -> statement that defines it, (module, name) it was imported from, or Import of a library."""
        if module not in self.namespaces:
            self.namespaces[module] = names = {}
            for statement in parse(self._text(module)).body:
                self._enter(names, module, statement)
        return self.namespaces[module]

    def _text(self, module: str) -> str:
        if module in self.sources:
            return self.sources[module]
        path = module_path(module)
        if path is None:
            raise LookupError(f"there is no module {module}")
        return path.read_text()

    def _enter(self, names: dict[str, Any], module: str, statement: ast.stmt) -> None:
        match statement:
            case ast.Import() | ast.ImportFrom():
                # `from package import module` inside the package itself names the module.
                names |= {name: x for name, x in _imported(statement).items() if x != (module, name)}
            case ast.With() | ast.If():  # imports that are lazy, or for types only
                for inner in statement.body:
                    self._enter(names, module, inner)
            case ast.FunctionDef(decorator_list=[ast.Attribute(value=ast.Name(owner))]) if owner in names:
                names[statement.name] = statement
                _riders(names[owner]).append(statement)
            case ast.FunctionDef() | ast.ClassDef():
                names[statement.name] = statement
            case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
                names[name] = statement
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=True):
                    names[ast.unparse(target)] = ast.copy_location(ast.Assign([target], value), statement)
            case ast.Expr(value=ast.Constant(value=str())) if names:
                last = names[next(reversed(names))]
                if isinstance(last, ast.Assign | ast.AnnAssign):
                    _riders(last).append(statement)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(owner)))) if owner in names:
                if isinstance(names[owner], ast.stmt):
                    _riders(names[owner]).append(statement)

    def _define(self, module: str, name: str, node: Any) -> str:
        symbol = symbol_of(module, name)
        if symbol not in self.program.definitions:
            node = rewritten(self._alone(module, node))
            definition = Definition(symbol, module, name, node, list(getattr(node, "riders", ())))
            self.program.definitions[symbol] = definition
            self.waiting.append(definition)
        return symbol

    def _alone(self, module: str, node: Any) -> Any:
        """A class with what it inherits from another of its module; anything else as it is."""
        base = self.namespace(module).get(ast.unparse(node.bases[0])) if getattr(node, "bases", ()) else None
        return merged(node, self._alone(module, base)) if isinstance(base, ast.ClassDef) else node

    def alias_of(self, module: str, name: str) -> ast.expr | None:
        """What an alias made by `Annotated` stands for, e.g. `Any` for `DType`; None for any other name."""
        found = self.namespace(module).get(name)
        if isinstance(found, tuple):
            return None if self._is_module(*found) else self.alias_of(*found)
        if isinstance(found, Import) or found is None:
            return None
        value = getattr(found, "value", None)
        if isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Annotated":
            assert isinstance(value.slice, ast.Tuple)
            return value.slice.elts[0]
        return None

    def _is_module(self, module: str, name: str) -> bool:
        return name not in self.namespace(module)

    def is_protocol(self, module: str, name: str) -> bool:
        """Whether the name is of a class that only describes others."""
        found = self.namespace(module).get(name)
        if isinstance(found, tuple):
            return not self._is_module(*found) and self.is_protocol(*found)
        return isinstance(found, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in found.bases)


def _riders(node: Any) -> list[ast.stmt]:
    if not hasattr(node, "riders"):
        node.riders = []
    return node.riders


def _imported(statement: ast.Import | ast.ImportFrom) -> dict[str, Any]:
    if isinstance(statement, ast.ImportFrom):
        module = statement.module or ""
        own = module.split(".")[0] == PACKAGE
        return {
            x.asname or x.name: (module, x.name) if own else Import(module, x.name, x.asname or x.name)
            for x in statement.names
        }
    # `import a.b` without another name binds a; its submodules come with it.
    found = [(x.asname or x.name.split(".")[0], x.name if x.asname else x.name.split(".")[0]) for x in statement.names]
    return {alias: Import(module, None, alias) for alias, module in found}


def bound_names(node: Any) -> set[str]:
    """Names that a function, lambda or comprehension binds itself, not in scopes inside it."""
    found: set[str] = set()
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        found |= {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
    elif hasattr(node, "generators"):
        return {x.id for g in node.generators for x in ast.walk(g.target) if isinstance(x, ast.Name)}
    for child in node.body if isinstance(node, ast.FunctionDef) else ():
        found |= _bound_in(child)
    return found


def _bound_in(node: ast.AST) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Lambda) or hasattr(node, "generators"):
        return set()
    found = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
    if isinstance(node, ast.ExceptHandler) and node.name:
        found.add(node.name)
    return found.union(*(_bound_in(child) for child in ast.iter_child_nodes(node)))


class Scoped(ast.NodeTransformer):
    """A transformer that knows which names are local."""

    def __init__(self) -> None:
        self.scopes: list[set[str]] = []

    def is_local(self, name: str) -> bool:
        """Whether a function around the current node binds the name."""
        return any(name in scope for scope in self.scopes)

    def inside(self, node: Any) -> Any:
        """The node with what is in it visited, in its own scope."""
        self.scopes.append(bound_names(node))
        self.generic_visit(node)
        self.scopes.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self.inside(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self.inside(node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return self.inside(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        return self.inside(node)

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return self.inside(node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self.inside(node)


class _Renaming(Scoped):
    """Renames mentions of global names to their symbols, and simplifies annotations."""

    def __init__(self, linker: Linker, module: str):
        super().__init__()
        self.linker, self.module = linker, module

    def visit_Name(self, node: ast.Name) -> ast.expr:
        names = self.linker.namespace(self.module)
        if self.is_local(node.id) or node.id not in names:
            return node
        if node.id == "Array":
            return self._array(names["Array"])
        if (alias := self.linker.alias_of(self.module, node.id)) is not None:
            return self._any() if ast.unparse(alias) == "Any" else node
        if self.linker.is_protocol(self.module, node.id):
            return self._any()
        return ast.copy_location(ast.Name(self.linker.resolve(self.module, node.id), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        modules = self.linker.program.modules
        if isinstance(node.value, ast.Name) and node.value.id in modules:
            return ast.Name(self.linker.resolve(modules[node.value.id], node.attr), node.ctx)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and not self.is_local(node.value.id):
            found = self.linker.namespace(self.module).get(node.value.id)
            if isinstance(found, Import) and found.module == "jaxtyping":
                assert isinstance(node.slice, ast.Tuple)
                return self.visit(node.slice.elts[0])
            if self.linker.alias_of(self.module, node.value.id) is not None:
                return self.visit(node.slice)
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        # A field of a class may have the name of a function of the module; it is not that function.
        node.annotation = self.visit(node.annotation)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        # The names of top-level definitions themselves become symbols at the end, when all are known.
        return self.inside(node)

    def _array(self, found: Any) -> ast.expr:
        # jaxtyping's is JAX's own; ours stands for that of either framework.
        of_jax = self.linker.array == "Array" or getattr(found, "module", "") == "jaxtyping"
        found = Import("jax", "Array", "Array") if of_jax else Import("torch", "Tensor", "Tensor")
        return ast.Name(self.linker.external(found), ast.Load())

    def _any(self) -> ast.expr:
        return ast.Name(self.linker.external(Import("typing", "Any", "Any")), ast.Load())
