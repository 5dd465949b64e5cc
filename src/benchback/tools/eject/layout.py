"""The order and the names in an ejected file, its imports and its text."""

import ast
import re
import sys
from typing import Any

from benchback.tools.eject.link import Definition, Import, Program, Scoped
from benchback.tools.eject.source import LINE_LENGTH, text_of

SECTIONS = (
    ("Configuration", r"\.algorithms\.(\w+\.config|fields)$"),
    ("Network", r"\.backends\.(?!xla|torch_state|torch_script)|\.plugins\."),
    ("Losses", r"\.(math|algorithms\.\w+\.loss$|algorithms\.\w+$|recurrent\.sequences$)"),
    ("Environment", r"\.envs\.|\.parts\.\w+_(jax|torch)$|\.parts\.made$"),
    ("Algorithm", r"\.algorithms\.|\.backends\.|\.agent$"),
    ("Training", r""),
)
"""Titles, and which modules they contain; the first that fits."""
COLLECTING = ("scan", "_scan_in_program", "rollout_steps", "remembering_steps", "_cloned", "as_data", "_flat")
"""Definitions of backends that are no networks."""


def section_of(definition: Definition, implementation: str) -> int:
    """The section that a definition belongs to."""
    titles = [title for title, _ in SECTIONS]
    if definition.module == implementation:
        network = definition.name not in ("State", "make", "Learner")
        return titles.index("Network" if network else "Algorithm")
    if definition.name in COLLECTING:
        return titles.index("Algorithm")
    return next(i for i, (_, pattern) in enumerate(SECTIONS) if re.search(pattern, definition.module))


def ordered(program: Program, implementation: str) -> list[tuple[str, list[Definition]]]:
    """Sections with their definitions, each after those it needs when the file is read."""
    definitions = program.definitions
    wanted = sorted(definitions.values(), key=lambda x: (section_of(x, implementation), _rank(x), x.node.lineno))
    done: dict[str, None] = {}
    sections: list[tuple[str, list[Definition]]] = [(title, []) for title, _ in SECTIONS]

    def emit(definition: Definition, section: int) -> None:
        if definition.symbol in done:
            return
        done[definition.symbol] = None
        for symbol in _needed_at_once(definition):
            if symbol in definitions:
                emit(definitions[symbol], min(section, section_of(definitions[symbol], implementation)))
        sections[section][1].append(definition)

    for definition in wanted:
        emit(definition, section_of(definition, implementation))
    return [(title, found) for title, found in sections if found]


def _rank(definition: Definition) -> str:
    # Sizes of networks come first, the command line last, and the rest in the order of the names of its files.
    if definition.module.endswith(".towers"):
        return ""
    return "~" if definition.module.endswith(".command") else definition.module


def _needed_at_once(definition: Definition) -> list[str]:
    """Names that must be defined before a definition: all but those in bodies of functions."""
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, ast.Name):
            found.append(node.id)
        for field, value in ast.iter_fields(node):
            inside = isinstance(node, ast.FunctionDef | ast.Lambda) and field == "body"
            for child in () if inside else value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(child)

    walk(definition.node)
    return found


def name_all(program: Program, implementation: str) -> dict[str, str]:
    """Symbol -> name in the file: the one it has at home, or with that of its module where two would collide."""
    order = sorted(program.definitions.values(), key=lambda x: x.module != implementation)
    hidden = _hidden(program)
    names: dict[str, str] = {}
    taken = set(program.imports)
    # The functions of a distribution are named alike, for the reader to see that they belong together.
    crowded = {x.module for x in order if x.symbol in hidden and ".math." in x.module}
    for x in order:
        collides = (
            x.name in taken or x.symbol in hidden or (x.module in crowded and isinstance(x.node, ast.FunctionDef))
        )
        names[x.symbol] = _longer(x) if collides else x.name
        taken.add(names[x.symbol])
    return names


def _longer(definition: Definition) -> str:
    home, name = definition.module.rpartition(".")[2], definition.name.lstrip("_")
    if name == "make":
        return f"make_{home}"
    return home.title().replace("_", "") + name if name[0].isupper() and not name.isupper() else f"{home}_{name}"


def _hidden(program: Program) -> set[str]:
    """Symbols whose own names would be hidden by a local name where they are used."""
    finder = _Hidden(program)
    for definition in program.definitions.values():
        for part in (definition.node, *definition.riders):
            finder.visit(part)
    return finder.found


class _Hidden(Scoped):
    def __init__(self, program: Program):
        super().__init__()
        self.program = program
        self.found: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        definition = self.program.definitions.get(node.id)
        if definition and self.is_local(definition.name):
            self.found.add(node.id)
        return node


class _Naming(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        node.id = self.names.get(node.id, node.id)
        return node


def apply_names(program: Program, names: dict[str, str]) -> None:
    """Give definitions and mentions of them their names in the file."""
    naming = _Naming(names)
    for symbol, definition in program.definitions.items():
        if isinstance(definition.node, ast.FunctionDef | ast.ClassDef):
            definition.node.name = names[symbol]
        else:
            node = definition.node
            target: Any = node.targets[0] if isinstance(node, ast.Assign) else node.target
            target.id = names[symbol]
        definition.node = naming.visit(definition.node)
        definition.riders = [naming.visit(x) for x in definition.riders]


def import_text(program: Program) -> str:
    """The imports that the file needs, in the order that ruff gives them."""
    mentioned = _Mentioned()
    for definition in program.definitions.values():
        for part in (definition.node, *definition.riders):
            mentioned.visit(part)
    needed = [x for alias, x in program.imports.items() if alias.split(".")[0] in mentioned.names]
    groups = ([x for x in needed if _standard(x)], [x for x in needed if not _standard(x)])
    return "\n\n".join("\n".join(_import_lines(group)) for group in groups if group)


class _Mentioned(Scoped):
    """Names that are not local where they are mentioned."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not self.is_local(node.id):
            self.names.add(node.id)
        return node


def _standard(x: Import) -> bool:
    return x.module.split(".")[0] in sys.stdlib_module_names


def _import_lines(group: list[Import]) -> list[str]:
    plain = sorted(
        {f"import {x.module}" + (f" as {x.alias}" if x.alias != x.module else "") for x in group if not x.name}
    )
    members: dict[str, set[str]] = {}
    for x in group:
        if x.name:
            members.setdefault(x.module, set()).add(x.name if x.name == x.alias else f"{x.name} as {x.alias}")
    return plain + [f"from {m} import {', '.join(sorted(members[m], key=_by_kind))}" for m in sorted(members)]


def _by_kind(name: str) -> tuple[int, str]:
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


def body_text(sections: list[tuple[str, list[Definition]]]) -> str:
    """The sections as text, each under its title."""
    parts = []
    for title, definitions in sections:
        text, last = "", ast.Pass()
        for definition in definitions:
            _describe_beside(definition)
            definition.node.apart = False
            constants = isinstance(definition.node, ast.Assign) and isinstance(last, ast.Assign)
            text += ("\n" if constants else "\n\n\n") + text_of([definition.node, *definition.riders]).rstrip("\n")
            last = definition.node
        parts.append(f"# ---- {title} ----\n{text.lstrip()}")
    return "\n\n\n".join(parts)


def _describe_beside(definition: Definition) -> None:
    """Put one-line descriptions of fields and constants at the end of their lines."""
    if isinstance(definition.node, ast.ClassDef):
        definition.node.body = _beside(definition.node.body)
        _describe_record(definition.node)
    elif isinstance(definition.node, ast.Assign):
        definition.node, *definition.riders = _beside([definition.node, *definition.riders])


def _describe_record(node: Any) -> None:
    """Put the description of a class that has nothing but fields beside its name."""
    fields = node.body[1:]
    if fields and all(isinstance(x, ast.AnnAssign) for x in fields) and (said := ast.get_docstring(node)):
        room = LINE_LENGTH - 8 - len(text_of([node]).partition("\n")[0])
        if words := _fitting(said, room) or _fitting(said.partition(". ")[0].partition(", ")[0] + ".", room):
            node.beside, node.body = f"# {words}", fields
            fields[0].apart = False


def _fitting(said: str, room: int) -> str:
    """A description, or its first part if only that fits; nothing if it does not either."""
    return next((x for x in (said, said.partition("; ")[0] + ".") if len(x) <= room), "")


def _beside(statements: list[ast.stmt]) -> list[ast.stmt]:
    kept: list[Any] = []
    for x in statements:
        said = x.value.value if isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant) else None
        described = kept and isinstance(kept[-1], ast.AnnAssign | ast.Assign)
        if isinstance(said, str) and described:
            room = LINE_LENGTH - 8 - len(text_of([kept[-1]]))
            if words := _fitting(" ".join(said.split()), room):
                kept[-1].beside = f"# {words}"  # type: ignore[attr-defined]
                continue
        kept.append(x)
    return kept
