"""Code size of each implementation: its lines, and how many names of its framework it uses."""

import ast
from pathlib import Path
from typing import Any

import benchback
from benchback.registry import BUILT_IN_ALGORITHMS, BUILT_IN_BACKENDS

FRAMEWORKS = ("jax", "optax", "benchback.backends", *(spec.module for spec in BUILT_IN_BACKENDS.values()))
"""Packages whose names count as concepts of a framework; shapes (jaxtyping) and our own maths do not."""
FOLDER = Path(benchback.__file__).parent / "algorithms"


def code_size_rows() -> list[dict[str, Any]]:
    """Every implementation with its lines of code and its concepts."""
    rows = []
    for algorithm in BUILT_IN_ALGORITHMS:
        for backend in BUILT_IN_BACKENDS:
            source = (FOLDER / algorithm / f"{backend}.py").read_text()
            found = concepts(source)
            row = {"algorithm": algorithm, "backend": backend, "lines": code_lines(source), "concepts": len(found)}
            rows.append(row | {"names": ", ".join(sorted(found))})
    return rows


def code_lines(source: str) -> int:
    """Lines with code on them: neither blank, nor comment, nor docstring."""
    tree = ast.parse(source)
    words: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            first = node.body[0]
            words |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and at not in words for at, line in lines)


def concepts(source: str) -> set[str]:
    """Distinct names of the framework that the file uses, as they are written: `nnx.Variable`, `jax.lax.scan`."""
    tree = ast.parse(source)
    roots: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _counts(alias.name):
                    roots[alias.asname or alias.name.split(".")[0]] = alias.asname or alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and _counts(node.module):
            roots |= {alias.asname or alias.name: alias.name for alias in node.names}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            dotted = _dotted(node)
            if dotted and dotted.split(".")[0] in roots:
                found.add(dotted)
    return found


def _counts(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in FRAMEWORKS)


def _dotted(node: ast.AST) -> str:
    """`a.b.c` of nested attributes; empty where they hang on something else than a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        start = _dotted(node.value)
        return f"{start}.{node.attr}" if start else ""
    return ""
