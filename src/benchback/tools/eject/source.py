"""Syntax trees that remember what Python's own forget: comments, blank lines, and how a literal was written.

Statements carry `comments` (lines above), `beside` (a comment at the end) and `apart` (whether a blank line precedes);
literals carry `raw`. Everything else is the tree of `ast`, changed in place by the passes and printed once at the end.
"""

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterator
from typing import Any

LINE_LENGTH = 120
KEPT = ("raw", "comments", "beside", "apart", "riders", "lineno")


def parse(text: str) -> ast.Module:
    """The tree of a module, with its comments and the text of its literals."""
    tree = ast.parse(text)
    lines = [line.encode() for line in text.splitlines()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            node.raw = _segment(lines, node)  # type: ignore[attr-defined]
    _attach_comments(tree, text)
    return tree


def _segment(lines: list[bytes], node: Any) -> str:
    first, last = node.lineno - 1, node.end_lineno - 1
    if first == last:
        return lines[first][node.col_offset : node.end_col_offset].decode()
    parts = [lines[first][node.col_offset :], *lines[first + 1 : last], lines[last][: node.end_col_offset]]
    return b"\n".join(parts).decode()


def _attach_comments(tree: ast.Module, text: str) -> None:
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    starting = {}
    for node in reversed(statements):  # outermost last, so that it wins
        starting[first_line(node)] = node
    ending = {node.end_lineno: node for node in statements if not hasattr(node, "body")}
    lines = text.splitlines()
    for node in statements:
        above = first_line(node) - 2
        node.apart = above >= 0 and not lines[above].strip()  # type: ignore[attr-defined]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if token.line.lstrip().startswith("#"):
            following = min((x for x in starting if x > line), default=None)
            if following is not None:
                _comments(starting[following]).append(token.string)
        elif line in ending and not token.string.startswith("# type: "):
            ending[line].beside = token.string  # type: ignore[attr-defined]


def first_line(node: Any) -> int:
    """Line on which a statement begins, its decorators included."""
    return min([node.lineno, *(x.lineno for x in getattr(node, "decorator_list", ()))])


def _comments(node: ast.stmt) -> list[str]:
    if not hasattr(node, "comments"):
        node.comments = []  # type: ignore[attr-defined]
    return node.comments  # type: ignore[attr-defined]


def hand_over_comments(old: ast.stmt, new: list[ast.stmt]) -> None:
    """Move the comments of a statement to the first of those that replace it."""
    if new:
        _comments(new[0])[:0] = getattr(old, "comments", [])
        new[0].apart = getattr(old, "apart", False)  # type: ignore[attr-defined]


def text_of(statements: list[ast.stmt], indent: str = "") -> str:
    """The statements as source text."""
    return "\n".join(_lines(statements, indent)) + "\n"


def _lines(statements: list[ast.stmt], indent: str) -> Iterator[str]:
    for place, node in enumerate(statements):
        if place and getattr(node, "apart", False):
            yield ""
        yield from (line for comment in getattr(node, "comments", ()) for line in _wrapped(comment, indent))
        beside = f"  {node.beside}" if hasattr(node, "beside") else ""  # type: ignore[attr-defined]
        if not hasattr(node, "body"):
            yield indent + expression_text(node) + beside
            continue
        yield from (f"{indent}@{expression_text(x)}" for x in getattr(node, "decorator_list", ()))
        yield f"{indent}{_header(node)}:{beside}"
        yield from _lines(node.body, indent + "    ")  # type: ignore[attr-defined]
        for handler in getattr(node, "handlers", ()):
            named = f" as {handler.name}" if handler.name else ""
            yield f"{indent}except {expression_text(handler.type)}{named}:"
            yield from _lines(handler.body, indent + "    ")
        for word, block in (("else", getattr(node, "orelse", ())), ("finally", getattr(node, "finalbody", ()))):
            if isinstance(node, ast.If) and _is_elif(block):
                first, *rest = _lines(list(block), indent)
                yield from (f"{indent}el{first.strip()}", *rest)
            elif block:
                yield f"{indent}{word}:"
                yield from _lines(block, indent + "    ")


def _wrapped(comment: str, indent: str) -> list[str]:
    """The lines of a comment: several if it was written elsewhere, where there was more room."""
    words = textwrap.wrap(comment.removeprefix("# "), LINE_LENGTH - len(indent) - 2)
    return [f"{indent}# {line}" for line in words] if len(words) > 1 else [indent + comment]


def _is_elif(block: Any) -> bool:
    return len(block) == 1 and isinstance(block[0], ast.If) and not getattr(block[0], "comments", ())


def _header(node: Any) -> str:
    match node:
        case ast.FunctionDef():
            returns = f" -> {expression_text(node.returns)}" if node.returns and node.name != "__init__" else ""
            return f"def {node.name}({expression_text(node.args)}){returns}"
        case ast.ClassDef():
            given = [expression_text(x) for x in (*node.bases, *node.keywords)]
            return f"class {node.name}" + (f"({', '.join(given)})" if given else "")
        case ast.If() | ast.While():
            return f"{type(node).__name__.lower()} {expression_text(node.test)}"
        case ast.For():
            return f"for {expression_text(node.target)} in {expression_text(node.iter)}"
        case ast.With():
            return "with " + ", ".join(expression_text(item) for item in node.items)
        case ast.Try():
            return "try"
    raise TypeError(f"cannot print a {type(node).__name__}")


class _AsWritten(ast.NodeTransformer):
    """Puts texts in place of what `ast.unparse` would write in another way than the source, or than ruff."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name(node.raw) if hasattr(node, "raw") else node  # type: ignore[attr-defined]

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        raw: str = getattr(node, "raw", "")
        if not raw:
            return node
        written = ast.parse(f"({raw})", mode="eval").body
        if isinstance(written, ast.Constant):  # what was to be put in is known
            same = written.value == "".join(getattr(x, "value", "") for x in node.values)
        else:
            same = ast.dump(written) == ast.dump(_bare(node))
        return ast.Name(raw) if same else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        # Operators keep the parentheses that the source has for its reader.
        raw = getattr(node, "raw", "")
        if "(" in raw and ast.dump(ast.parse(f"({raw})", mode="eval").body) == ast.dump(_bare(node)):
            return ast.Name(f"({raw})")
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) and not node.keywords:
            node.args = [ast.Name(ast.unparse(node.args[0])[1:-1])]
        node.args = [_unwrapped(x) for x in node.args]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        node.value = _unwrapped(node.value)
        return node

    def _statement(self, node: Any) -> Any:
        self.generic_visit(node)
        if isinstance(node.value, ast.Tuple) and node.value.elts:
            node.value = ast.Name(ast.unparse(node.value)[1:-1])
        elif node.value is not None:
            node.value = _unwrapped(node.value)
        return node

    visit_Return = visit_Assign = visit_Yield = _statement


def _bare(node: Any) -> Any:
    """A tree without texts, as it would be parsed."""
    return ast.parse(ast.unparse(ast.fix_missing_locations(clone(node))), mode="eval").body


def _unwrapped(node: ast.expr) -> ast.expr:
    """A text in parentheses without them, where nothing but the text is meant."""
    match node:
        case ast.Name(text) if text.startswith("(") and _closes_at_end(text):
            return ast.Name(text[1:-1])
    return node


def _closes_at_end(text: str) -> bool:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


def clone(node: Any) -> Any:
    """A copy of a tree with its comments and texts, without what an analysis has noted in it."""
    if isinstance(node, list):
        return [clone(x) for x in node]
    if not isinstance(node, ast.AST):
        return node
    new = type(node)(**{name: clone(value) for name, value in ast.iter_fields(node)})
    for name in KEPT:
        if hasattr(node, name):
            setattr(new, name, getattr(node, name))
    return new


class Substitution(ast.NodeTransformer):
    """Puts arguments in the place of parameters."""

    def __init__(self, given: dict[str, ast.expr]):
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return clone(self.given[node.id]) if node.id in self.given else node


def expression_text(node: ast.AST | None) -> str:
    """A single expression or simple statement as source text, its literals as they were written."""
    return ast.unparse(ast.fix_missing_locations(_AsWritten().visit(clone(node))))
