"""Classes that a file does not need as such: wrappers of one value, other names of a library's class, absent kinds."""

import ast
import re
from typing import Any

from benchback.tools.eject.analysis import Analysis
from benchback.tools.eject.link import Program
from benchback.tools.eject.prune import REPEATED, TEXT, attributes_read
from benchback.tools.eject.source import Substitution, clone, hand_over_comments
from benchback.tools.eject.values import Instance


class Unions(ast.NodeTransformer):
    """Takes classes of which there are no instances out of annotations like `A | B`, and `tuple[()]` beside others."""

    def __init__(self, analysis: Analysis):
        made = {symbol for _, symbol in analysis.constructions}
        made |= {analysis.owners[x.function] for x in analysis.sites if x.function in analysis.owners}
        records = (x for x in analysis.reached if isinstance(analysis.program.definitions[x].node, ast.ClassDef))
        self.empty = set(records) - made
        self.changed = False

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if not isinstance(node.op, ast.BitOr):
                return node
            # A switch decides whether there is something or nothing in its place; what is always nothing is left out.
            switched_on = ast.unparse(one) == "tuple[()]" and ast.unparse(other) not in self.empty
            if switched_on or (isinstance(one, ast.Name) and one.id in self.empty):
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
        name = ast.unparse(fields[0].target)  # type: ignore[attr-defined]
        return None if {(None, name), (TEXT, name)} & self.read else fields[0]  # type: ignore[return-value]

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


def replace_by_bases(program: Program, given_away: set[str]) -> None:
    """Name the base in the place of a class that only repeats it; if no library gets one, make it a plain record.

    Its functions lose parameters that nobody gives them, so that they are no longer those of the base.
    """
    for symbol, definition in list(program.definitions.items()):
        node = definition.node
        if not (isinstance(node, ast.ClassDef) and any(ast.unparse(base) in REPEATED for base in node.bases)):
            continue
        if symbol not in given_away:
            node.bases = [ast.Name("NamedTuple", ast.Load())]
        else:
            for other in program.definitions.values():
                other.node = Substitution({symbol: node.bases[0]}).visit(other.node)
            del program.definitions[symbol]


class LinenModules(ast.NodeTransformer):
    """Declares modules of Linen as Any: types do not say what `apply` returns, which depends on its arguments."""

    def __init__(self, program: Program):
        classes = {symbol: x.node for symbol, x in program.definitions.items() if isinstance(x.node, ast.ClassDef)}
        linen = "nn" in program.imports and program.imports["nn"].module.startswith("flax")
        bases = {symbol: [ast.unparse(base) for base in node.bases] for symbol, node in classes.items()}
        self.symbols = {symbol for symbol, names in bases.items() if linen and "nn.Module" in names}

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        match node:
            case ast.Assign(targets=[ast.Name() as target], value=ast.Call(func=ast.Name(symbol))):
                if symbol in self.symbols:
                    declared = ast.AnnAssign(target, ast.Name("Any", ast.Load()), node.value, 1)
                    hand_over_comments(node, [declared])
                    return declared
        return node
