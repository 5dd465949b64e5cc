"""Studies: declarative products of axes that expand to cells in a fixed order.

Studies that come with the package are Python data modules in `benchback/measure/studies/`, one `STUDY` each, so that an
installed package finds them; a user's own is a YAML file with the same fields. A constructed study has been checked:
each of its cells can run. Nothing is run here, and no framework is imported.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, get_args

from benchback import registry
from benchback.agent import Gradients
from benchback.errors import InputError, hint
from benchback.measure.record import Cell, Kind, digest
from benchback.measure.study_checks import (
    Device,
    Order,
    Protocol,
    check_cell,
    check_duplicates,
    check_products,
    check_settings,
    check_vary,
    shown,
)
from benchback.training.run import Run, typed
from benchback.training.run_dir import read_config

FEWEST_ITERATIONS = 3
"""Fewest iterations of a scaled run: one that compiles, and two to see that the next does not."""
MOST_BYTES = 32 * 1024
"""Largest size of a YAML study."""
SETTINGS = ("timing", "threads", "device", "members", "vary", "kind")
"""Fields of a cell that are not fields of its run; axes and `fixed` may set them too."""
FOLDER = Path(__file__).parent / "studies"


@dataclass(frozen=True)
class Product:
    """Every combination of the axes, the last varying fastest, like nested loops in the order written."""

    axes: Mapping[str, Sequence[Any]]
    """Field -> its values. Where a value is a mapping, it sets several fields at once and the axis's name is free."""
    label: str = "main"
    """Purpose of the entries; shown beside them."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Fields that all entries share."""
    devices: tuple[str, ...] = get_args(Device)
    """Devices on which this part of the study exists; it is left out elsewhere."""
    last: bool = False
    """Measure it after all others, and only if the budget leaves time for it."""

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    def rows(self) -> Iterator[dict[str, Any]]:
        """The fields of each entry, in order."""
        for choice in product(*self.axes.values()):
            row = dict(self.fixed)
            for name, value in zip(self.axes, choice, strict=True):
                row |= value if isinstance(value, Mapping) else {name: value}
            yield row


@dataclass(frozen=True)
class Entry:
    """A configuration of a study at its published place."""

    index: int
    label: str
    cell: Cell
    published: Mapping[str, str] = field(default_factory=dict)
    """Its name in earlier work, e.g. framework and compile."""


@dataclass(frozen=True)
class Study:
    """Everything that determines what is measured, except the machine."""

    name: str
    """Names the campaign and its store: 1 to 64 of the characters a-z, 0-9, _ and -."""
    products: tuple[Product, ...]
    """Parts of the study, one after another; each a product of axes."""
    description: str = ""
    """What it compares, in a sentence."""
    min_blocks: int = 5
    """Blocks of every group before the stopping rule applies."""
    max_blocks: int = 30
    """Blocks after which a group stops, precise or not."""
    precision: float = 0.02
    """Half width of the 95 % interval of the log ratio at which a group stops."""
    timeout_s: float = 1800.0
    """Seconds after which a run is ended."""
    protocol: Protocol = "relay"
    """`relay`: the variants of a block take turns in resident processes. `runs`: whole trainings one after another."""
    turn_s: float = 0.05
    """Seconds of the counted part of a turn, at least."""
    relay_s: float = 20.0
    """Seconds of all rounds of a relay, about."""
    keep_caches: bool = False
    """Let only the first relay of a cell compile; later ones load its programs, and their start is not measured."""
    budget_s: float | None = None
    """Seconds for the whole campaign: blocks are added while they fit, first where the verdict is open."""
    order: Order = "protocol"
    """`protocol`: paired blocks in a seeded order. `original`: the order in which the study lists its cells."""
    repeats: int = 1
    """Passes through the list in the original order."""
    aa: bool = True
    """Include an A/A pair: two copies of one cell, which must come out equal. Not in the original order."""
    rerun_noisy: bool = True
    """Repeat, at most twice, runs made while the machine was noisy; otherwise they are tagged and kept."""
    device: Device = "cpu"
    """Where everything runs, unless a product says otherwise."""
    threads: int = 1
    """CPU threads of every run, unless a product says otherwise."""
    scale: float = 1.0
    """Factor on the number of iterations, at most 1: a quick look, marked as not comparable."""
    only: tuple[int, ...] | None = None
    """Indices of the configurations that are kept; all of them if None."""
    kind: Kind = "training"
    """Which program runs the cells, unless a product says otherwise; a study of one's own is always of trainings."""

    def __post_init__(self) -> None:
        check_settings(self)
        check_products(self)
        check_duplicates(self.entries)

    @property
    def comparable(self) -> bool:
        """Whether its results may be compared with those of the full study."""
        return self.scale == 1.0

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Its configurations in published order; an entry keeps its index whatever was selected."""
        parts = [part for part in self.products if self.device in part.devices]
        rows = [(part.label, row) for part in parts for row in part.rows()]
        kept = range(len(rows)) if self.only is None else self.only
        return tuple(_entry(self, index, *rows[index]) for index in kept)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The distinct cells, in order of first mention: entries of two labels may share one."""
        return tuple({entry.cell.id: entry.cell for entry in self.entries}.values())

    @cached_property
    def last(self) -> frozenset[str]:
        """Groups that are measured after all others: those of which every entry says so."""
        late = {part.label for part in self.products if part.last}
        sooner = {entry.cell.group for entry in self.entries if entry.label not in late}
        return frozenset(entry.cell.group for entry in self.entries) - sooner

    @property
    def id(self) -> str:
        """Hash of what is measured and of the kind of order; independent of descriptions and stopping rule."""
        entries = [[entry.label, entry.cell.id] for entry in self.entries]
        # Studies of whole runs have no further part: as in stores from before there were relays.
        return digest([self.name, self.order, self.aa, entries, *(["relay"] if self.relays else [])])

    @property
    def relays(self) -> bool:
        """Whether its blocks are run as relays."""
        return self.protocol == "relay" and self.order == "protocol" and self.kind == "training"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; `Study.from_dict` is its inverse, and a YAML file has the same fields."""
        return _plain(asdict(self))

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Study":
        """The study whose fields are given; unknown names are refused with the nearest known one."""
        parts = given.get("products")
        if not isinstance(parts, list) or not parts:
            raise InputError("products must be a list with at least one product, each with its axes")
        values = _fields(cls, "a study", {name: x for name, x in given.items() if name != "products"}, ("products",))
        return cls(products=tuple(_product(part) for part in parts), **values)


def names() -> list[str]:
    """The studies that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def load(name_or_path: str | Path) -> Study:
    """The study of that name, or the one in that YAML file."""
    given = str(name_or_path)
    if given in names():
        return import_module(f"benchback.measure.studies.{given}").STUDY
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        return _read(path)
    if path.suffix == ".py":
        raise InputError(
            f"study={shown(given)}: Python files are read from the package only; write the same fields as YAML, "
            f"or name one of {', '.join(names())}"
        )
    raise InputError(f"study={shown(given)} is unknown; {hint(given, names())}, or a path to a .yaml file")


def scaled(study: Study, factor: float) -> Study:
    """The study with its iterations multiplied by `factor`, at least 3: a quick look, marked as not comparable."""
    if not 0 < factor <= 1:
        raise InputError(f"scale={factor:g} must be greater than 0 and at most 1, e.g. 0.1")
    return replace(study, scale=study.scale * factor)


def importing(study: Study, modules: Sequence[str]) -> Study:
    """The study of trainings whose every configuration names these modules, so that its workers import them."""
    if study.kind != "training":
        return study
    parts = [replace(part, fixed={"imports": list(modules), **part.fixed}) for part in study.products]
    return replace(study, products=tuple(parts))


def select(study: Study, index: int | None = None, start: int | None = None, count: int | None = None) -> Study:
    """The entries with that index, or from index `start` on, at most `count` of them."""
    if index is not None and (start is not None or count is not None):
        raise InputError("--index names one configuration; leave out --from and --count, or use those alone")
    known = [entry.index for entry in study.entries]
    for option, value in (("index", index), ("from", start)):
        if value is not None and value not in known:
            raise InputError(f"--{option} {value}: {study.name} has configurations {known[0]} to {known[-1]}")
    if count is not None and count < 1:
        raise InputError(f"--count {count} must be at least 1")
    if index is not None:
        return replace(study, only=(index,))
    kept = [i for i in known if start is None or i >= start][:count]
    return study if kept == known else replace(study, only=tuple(kept))


def variants(
    backends: Sequence[str], units: Sequence[str] = ("phase",), gradients: Gradients = "framework"
) -> tuple[dict[str, str], ...]:
    """Each backend that can compute its gradients so in its best mode, in every of the units."""
    specs = {name: registry.BACKENDS[name] for name in backends}
    able = {name: spec.best for name, spec in specs.items() if gradients in spec.gradients}
    return tuple({"backend": b, "mode": m, "unit": u, "gradients": gradients} for b, m in able.items() for u in units)


def every_mode(without: Sequence[str] = ()) -> tuple[dict[str, str], ...]:
    """Every built-in backend in every mode and unit it can run, but for the modes left out."""
    found = []
    for backend, spec in registry.BUILT_IN_BACKENDS.items():
        for mode, unit in product(spec.modes, spec.units):
            if mode not in without and not (mode == "eager" and unit == "chunk"):
                found.append({"backend": backend, "mode": mode, "unit": unit})
    return tuple(found)


def _entry(study: Study, index: int, label: str, row: Mapping[str, Any]) -> Entry:
    row = dict(row)
    published = row.pop("published", {})
    settings = {"threads": study.threads, "device": study.device, "kind": study.kind}
    settings |= {name: row.pop(name) for name in SETTINGS if name in row}
    if row.get("unit") != "chunk":
        row.pop("chunk", None)  # it has no effect there, and must not make equal cells distinct
    try:
        check_cell(settings, row, published)
        fields = _resolved(study, settings["kind"], row)
        check_vary(settings.get("vary", {}), settings.get("members", 1), fields)
    except InputError as error:
        who = "/".join(str(row.get(name, "?"))[:40] for name in ("backend", "mode", "unit", "env"))
        raise InputError(f"study {study.name}, configuration {index} ({label}, {who}): {error}") from None
    return Entry(index, label, Cell(fields, **settings), published)


def _resolved(study: Study, kind: Kind, row: Mapping[str, Any]) -> dict[str, Any]:
    """Every field of a training except its seed; the input of other kinds is taken as it is."""
    if kind != "training":
        return dict(row)
    flat = Run.from_dict(shortened(row, study.scale)).to_dict()
    return {name: x for name, x in flat.items() if name != "seed"}


def shortened(row: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The fields of a run with fewer iterations; a chunk shrinks with them, to a divisor."""
    row = dict(row)
    if factor == 1.0:
        return row
    full = Run.from_dict(row)
    iterations = max(FEWEST_ITERATIONS, round(full.config.num_iterations * factor))
    iterations = min(iterations, full.config.num_iterations)
    row["num_iterations"] = iterations
    if full.unit == "chunk":
        whole = full.chunk == full.config.num_iterations
        wanted = iterations if whole else max(1, int(full.chunk * factor))
        row["chunk"] = max(d for d in range(1, wanted + 1) if iterations % d == 0)
    return row


def _read(path: Path) -> Study:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"study {path}: larger than {MOST_BYTES} bytes; use axes instead of listing cells")
        read = Study.from_dict(read_config(path))
    except OSError as error:
        raise InputError(f"study {path}: cannot be read ({error.strerror})") from None
    except InputError as error:
        reason = str(error).removeprefix(f"--config {path}: ").removeprefix(f"study {path}: ")
        raise InputError(f"study {path}: {reason}") from None
    except (RecursionError, TypeError, ValueError) as error:
        # Errors of the YAML library itself: deep nesting, keys that are lists, dates that do not exist.
        raise InputError(f"study {path}: not plain YAML ({' '.join(str(error).split())[:200]})") from None
    kinds = {read.kind, *(cell.kind for cell in read.cells)}
    if kinds != {"training"}:
        other = min(kinds - {"training"})
        raise InputError(f"study {path}: kind={other} has a verb of its own; leave it out to study trainings")
    return read


def _product(given: Any) -> Product:
    if not isinstance(given, Mapping):
        raise InputError(f"product={shown(given)} must be a mapping with axes, e.g. axes: {{backend: [linen, nnx]}}")
    values = _fields(Product, "a product", given)
    for name in ("axes", "fixed"):
        if not all(isinstance(key, str) for key in values.get(name, {})):
            raise InputError(f"{name}: every key must be the name of a field")
    for axis, choices in values["axes"].items():
        if not isinstance(choices, list):
            raise InputError(f"axis {shown(axis)}={shown(choices)} must be a list of values, e.g. [linen, nnx]")
    return Product(**values)


def _fields(cls: type, what: str, given: Mapping[str, Any], apart: Sequence[str] = ()) -> dict[str, Any]:
    """The given values checked against the fields of `cls`; names in `apart` may be missing."""
    known = {f.name: f for f in fields(cls)}
    for name in given:
        if name not in known:
            raise InputError(f"{shown(name)} is not a field of {what}; {hint(name, known)}")
    for name, f in known.items():
        if name not in given and name not in apart and f.default is MISSING and f.default_factory is MISSING:
            raise InputError(f"{what} needs the field {name}")
    return {name: typed(known[name], value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    """The value with lists for tuples."""
    if isinstance(value, Mapping):
        return {name: _plain(x) for name, x in value.items()}
    return [_plain(x) for x in value] if isinstance(value, list | tuple) else value
