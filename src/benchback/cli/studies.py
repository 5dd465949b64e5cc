"""`benchback studies`: the studies that ship, one of them as YAML to edit, and the fields of a study."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, get_args, get_origin

import yaml
from rich.console import Console

from benchback import registry
from benchback.cli.arguments import leading, parse
from benchback.cli.tables import hours, table
from benchback.errors import InputError
from benchback.measure import study as studies
from benchback.measure.plan import estimate
from benchback.measure.record import Timing
from benchback.measure.study import Product, Study
from benchback.training.run import Run


@dataclass(frozen=True)
class StudiesFlags:
    """List the studies that ship: what they compare, how many cells they have, and how long they take here, about.

    With the name of a study: that one alone, or with --yaml as a file to edit and to give to `plan` and `run`.
    """

    yaml: bool = False
    """Print the named study as YAML."""
    fields: bool = False
    """Print every field of a study's YAML, as Markdown."""
    json: bool = False
    """Print JSON."""


def studies_verb(arguments: list[str]) -> int:
    name, rest = leading(arguments)
    flags = parse(StudiesFlags, rest, "studies [STUDY]")
    if flags.yaml and name is None:
        raise InputError(f"--yaml prints one study; name it, e.g. studies {studies.names()[-1]} --yaml")
    if flags.fields:
        print(fields_text(), end="")
        return 0
    chosen = [studies.load(known) for known in (studies.names() if name is None else [name])]
    if flags.yaml:
        print(yaml_text(chosen[0]), end="")
    else:
        print_studies(chosen, flags.json)
    return 0


def print_studies(chosen: list[Study], as_json: bool) -> None:
    """Print a line per study."""
    costs = [(study, estimate(study)) for study in chosen]
    if as_json:
        rows = [
            {"name": study.name, "description": study.description, "cells": len(study.cells), "estimate": asdict(cost)}
            for study, cost in costs
        ]
        print(json.dumps(rows, indent=2))
        return
    rows = [
        (study.name, study.description, str(len(study.cells)), hours(cost.seconds).replace(" ", "\N{NO-BREAK SPACE}"))
        for study, cost in costs
    ]
    Console().print(table("studies", ("study", "what it compares", "cells", "about"), rows))
    print("benchback plan STUDY says more; benchback studies STUDY --yaml > mine.yaml is a start for your own")


def yaml_text(study: Study) -> str:
    """The study as a YAML file: every field that is not the default, in the order of the fields."""
    whole, usual = study.to_dict(), {f.name: f.default for f in fields(Study)}
    kept = {name: x for name, x in whole.items() if name == "products" or x != usual[name]}
    kept["products"] = [_product(part) for part in kept["products"]]
    head = f"# A study of benchback, from {study.name}. Give it a name of its own: the name is that of its store.\n"
    head += "# `benchback studies --fields` explains every field; `benchback run FILE.yaml` runs it.\n"
    return head + yaml.dump(kept, Dumper=_WithoutAliases, sort_keys=False, width=100)


class _WithoutAliases(yaml.SafeDumper):
    """Writes equal values out: aliases are not read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _product(part: dict[str, Any]) -> dict[str, Any]:
    usual = json.loads(json.dumps(asdict(Product({}))))
    return {name: x for name, x in part.items() if name == "axes" or x != usual[name]}


def fields_text() -> str:
    """Every field of a study's YAML as Markdown, from the dataclasses."""
    timing = ", ".join(f"`{x}`" for x in get_args(Timing))
    parts = ["### Fields of a study\n", *_rows(Study), "\n### Fields of a product\n", *_rows(Product)]
    parts += [
        "\n### Fields of a configuration\n",
        "Axes and `fixed` set any of these: `timing` (when the clock is stopped: " + timing + "), `threads`, `device`,",
        "`published` (its names in earlier work, shown beside it), `algorithm`, and the fields of the run.\n",
        *_rows(Run, without=("config", "seed")),
    ]
    for name, known in registry.ALGORITHMS.items():
        parts += [f"\nOf {name}, {known.title[:1].lower()}{known.title[1:]}:\n", *_rows(registry.config(name))]
    return "\n".join(parts) + "\n"


def _rows(cls: type, without: tuple[str, ...] = ()) -> Iterator[str]:
    """A Markdown table with a row for each field of the dataclass."""
    yield "| field | kind | default | meaning |\n|---|---|---|---|"
    words = meanings(cls)
    for field in fields(cls):
        if field.name not in without:
            cells = (f"`{field.name}`", _kind(field.type), _default(field), words[field.name])
            yield f"| {' | '.join(cell.replace('|', 'or') for cell in cells)} |"


def meanings(cls: type) -> dict[str, str]:
    """Field -> the docstring below it, in one line."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for place, following in zip(tree.body, tree.body[1:], strict=False):
        if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)):
            continue
        if isinstance(place, ast.AnnAssign) and isinstance(place.target, ast.Name):
            found[place.target.id] = " ".join(str(following.value.value).split())
    return found


def _kind(annotation: Any) -> str:
    if get_origin(annotation) in (tuple, Mapping):
        return "list" if get_origin(annotation) is tuple else "mapping"
    if choices := get_args(annotation):
        kinds = {type(x) for x in choices}
        return ", ".join(map(str, choices)) if kinds == {str} else " or ".join(_kind(x) for x in choices[:1])
    words = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)).lower())


def _default(field: Field) -> str:
    if field.default is MISSING:
        return "needed" if field.default_factory is MISSING else "none"
    if field.default in (None, "", ()):
        return "none"
    return f"`{json.dumps(field.default)}`"
