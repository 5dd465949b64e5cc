"""Checks of a study: each names the field, its value and the remedy. They run when a study is constructed."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchback import registry
from benchback.envs.names import EXTERNAL
from benchback.errors import InputError
from benchback.measure.record import Kind, Timing
from benchback.population.spec import grid_of
from benchback.training.run import Run

if TYPE_CHECKING:
    from benchback.measure.study import Entry, Study

Order = Literal["protocol", "original"]
"""`protocol`: paired blocks in a seeded order. `original`: the order in which the study lists its cells."""
Device = Literal["cpu", "gpu"]
Protocol = Literal["relay", "runs"]
"""`relay`: the variants of a block take turns in resident processes. `runs`: whole trainings one after another."""

MOST_CELLS = 10_000
MOST_BLOCKS = 10_000
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
LONGEST_LABEL = 100
LONGEST_DESCRIPTION = 2000


def check_cell(settings: Mapping[str, Any], row: Mapping[str, Any], published: Any) -> None:
    """Refuse a configuration that cannot run."""
    for name, choices in (("timing", Timing), ("device", Device), ("kind", Kind)):
        if name in settings:
            registry.choose(name, str(settings[name]), get_args(choices))
    threads = settings["threads"]
    if type(threads) is not int or threads < 1:
        raise InputError(f"threads={threads} must be a whole number of at least 1")
    _check_members(settings.get("members", 1), row)
    if "seed" in row:
        raise InputError("seed is not for a study to choose: each block has its own, shared by all that it compares")
    if row.get("mode") == "cudagraphs" and settings["device"] != "gpu":
        raise InputError(f"mode=cudagraphs needs device=gpu and this is device={settings['device']}; use mode compile")
    if not isinstance(published, Mapping):
        raise InputError(f"published={published!r} must be a mapping of names to words")
    for name, word in published.items():
        check_text(f"published {name}", word, LONGEST_LABEL)


def _check_members(members: Any, row: Mapping[str, Any]) -> None:
    """Refuse several agents where they cannot be one program."""
    if type(members) is not int or members < 1:
        raise InputError(f"members={shown(members)} must be a whole number of at least 1")
    if members == 1:
        return
    backend = str(row.get("backend", registry.DEFAULT_BACKEND))
    mode, best = (
        str(row.get("mode", "best")),
        registry.BACKENDS[registry.choose("backend", backend, registry.BACKENDS)].best,
    )
    registry.check_population(backend, best if mode == "best" else mode)
    suite = str(row.get("env", "")).partition("/")[0]
    if suite in EXTERNAL:
        raise InputError(
            f"members={members} need an environment inside the program, and {suite} runs in Python; use gymnax"
        )


def check_vary(vary: Any, members: int, run: Mapping[str, Any]) -> None:
    """Refuse floats that cannot differ between so many agents of the run."""
    if vary == {}:
        return
    if not isinstance(vary, Mapping) or not all(isinstance(name, str) for name in vary):
        raise InputError(f"vary={shown(vary)} must be a mapping of fields to values, e.g. {{clip: '0.1,0.2'}}")
    if members == 1:
        raise InputError(f"vary={shown(vary)} is about several agents; give members, e.g. 4 for each of its points")
    grid_of(vary, members, Run.from_dict(dict(run)))


def check_settings(study: "Study") -> None:
    """Refuse wrong values of a study's own fields."""
    if not NAME.fullmatch(study.name):
        raise InputError(
            f"name={shown(study.name)} must be 1 to 64 of the characters a-z, 0-9, _ and -, and begin with a-z or 0-9"
        )
    check_text("description", study.description.replace("\n", " "), LONGEST_DESCRIPTION)
    for name in ("min_blocks", "repeats", "threads"):
        if getattr(study, name) < 1:
            raise InputError(f"{name}={getattr(study, name)} must be at least 1")
    for name in ("max_blocks", "repeats"):
        if getattr(study, name) > MOST_BLOCKS:
            raise InputError(f"{name}={getattr(study, name)} is too many; at most {MOST_BLOCKS}")
    if study.max_blocks < study.min_blocks:
        raise InputError(f"max_blocks={study.max_blocks} must be at least min_blocks={study.min_blocks}")
    for name in ("precision", "timeout_s", "turn_s", "relay_s", *(["budget_s"] if study.budget_s is not None else [])):
        if not 0 < getattr(study, name) < math.inf:
            raise InputError(f"{name}={getattr(study, name)} must be greater than 0")
    if not 0 < study.scale <= 1:
        raise InputError(f"scale={study.scale:g} must be greater than 0 and at most 1, e.g. 0.1")
    registry.choose("order", study.order, get_args(Order))
    registry.choose("protocol", study.protocol, get_args(Protocol))
    registry.choose("device", study.device, get_args(Device))
    registry.choose("kind", study.kind, get_args(Kind))


def check_products(study: "Study") -> None:
    """Refuse products that are empty, too many, or for unknown devices."""
    for number, part in enumerate(study.products):
        check_text(f"label of product {number}", part.label, LONGEST_LABEL)
        for device in part.devices:
            registry.choose(f"devices of product {number}", str(device), get_args(Device))
        for axis, values in part.axes.items():
            if not len(values):
                raise InputError(f"study {study.name}, product {number} is empty: axis {axis} has no values; give one")
    late, sooner = ({part.label for part in study.products if part.last is last} for last in (True, False))
    if both := sorted(late & sooner):
        raise InputError(
            f"label={shown(both[0])} is of products with last and without; give those with last another label"
        )
    count = sum(len(part) for part in study.products if study.device in part.devices)
    if not count:
        raise InputError(f"study {study.name} has no configurations on device={study.device}; give a product with axes")
    if count > MOST_CELLS:
        raise InputError(f"study {study.name} has {count} configurations; at most {MOST_CELLS}: shorten an axis")
    wrong = [i for i in study.only or () if not 0 <= i < count]
    if wrong or study.only == ():
        raise InputError(f"only={wrong or '()'}: study {study.name} has configurations 0 to {count - 1}")


def check_duplicates(entries: Sequence["Entry"]) -> None:
    """Refuse two equal configurations under one label."""
    seen: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        first = seen.setdefault((entry.label, entry.cell.id), entry)
        if first is not entry:
            raise InputError(
                f"configurations {first.index} and {entry.index} ({entry.label}, {entry.cell.name}) are the same; "
                "remove one, or more blocks repeat it"
            )


def check_text(what: str, text: Any, longest: int) -> None:
    """Refuse control characters, and those that change the reading direction, in text shown to people."""
    if not isinstance(text, str):
        raise InputError(f"{what}={shown(text)} must be words")
    if len(text) > longest:
        raise InputError(f"{what} has {len(text)} characters; at most {longest}")
    for character in text:
        if unicodedata.category(character).startswith("C"):
            raise InputError(f"{what}={shown(text)} has the invisible character U+{ord(character):04X}; remove it")


def shown(value: Any) -> str:
    """Any value as one short line."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
