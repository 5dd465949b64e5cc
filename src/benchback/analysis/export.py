"""A store as tables for other programs: `runs`, a row per attempt, `samples`, a row per measured value, and `ratios`,
what the claims are made of.

File names never derive from what is stored, and text that a spreadsheet would take for a formula is made harmless.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchback.analysis import ratios
from benchback.analysis.reader import read, stored_attempts
from benchback.errors import InputError
from benchback.measure.record import Attempt, Cell, Slot, canonical
from benchback.measure.store import Store
from benchback.training.outputs import check_replaceable, replacing_folder

if TYPE_CHECKING:
    import polars

Row = dict[str, Any]
Writer = Callable[[Path, Sequence[str], Iterable[Row]], None]

OF_RUN = ("algorithm", "env", "backend", "mode", "unit", "chunk", "gradients", "model", "network", "num_envs")
SAMPLE_COLUMNS = ("slot", "attempt", "call", "name", "value")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings that make a spreadsheet compute a cell, the full-width signs included."""
MAKER = "benchback export"
"""Who made a folder of tables, as its list of files says."""
BATCH = 1 << 20
"""Rows of samples held as Python objects at a time."""


def export(store: Store, out: Path, format: str) -> list[Path]:
    """Write the tables as the folder `out` and return their paths; a folder of an earlier export is replaced whole."""
    if format not in WRITERS:
        raise InputError(f"format={format} is unknown; choose one of {', '.join(WRITERS)}")
    check_replaceable(out, MAKER)
    runs = list(_runs(store))
    tables = {
        "runs": (_columns(runs), runs),
        "samples": (SAMPLE_COLUMNS, _samples(store)),
        "ratios": (ratios.COLUMNS, _ratios(store)),
    }
    with replacing_folder(out, MAKER) as draft:
        for name, (columns, rows) in tables.items():
            WRITERS[format](draft / f"{name}.{format}", columns, rows)
    return [out / f"{name}.{format}" for name in tables]


def frames(store: Store) -> tuple["polars.DataFrame", "polars.DataFrame"]:
    """Runs and samples as data frames."""
    runs = list(_runs(store))
    return _frame(_columns(runs), runs), _frame(SAMPLE_COLUMNS, _samples(store))


def _columns(rows: Iterable[Row]) -> list[str]:
    """The columns of all rows, in the order they first appear."""
    return list(dict.fromkeys(chain.from_iterable(rows))) or ["slot", "attempt"]


def _runs(store: Store) -> Iterator[Row]:
    campaign = store.campaign()
    study = campaign.get("study")
    name = study.get("name") if isinstance(study, Mapping) else study
    place = {"study": _flat(name), "note": _flat(campaign.get("note"))}
    for slot, cell, attempt in stored_attempts(store):
        yield place | _of_cell(slot.cell, cell) | _of_attempt(slot, attempt)


def _of_cell(name: str, cell: Cell) -> Row:
    identity = {"cell": name, "group": cell.group, "variant": cell.variant}
    run = {field: _flat(cell.run.get(field)) for field in OF_RUN}
    run |= {"gradients": cell.gradients, "network": cell.network} if cell.kind == "training" else {}
    how = {"timing": cell.timing, "threads": cell.threads, "device": cell.device, "members": cell.members}
    return identity | run | how | {"twin": cell.twin}


def _of_attempt(slot: Slot, attempt: Attempt) -> Row:
    row = {
        "slot": slot.id,
        "block": slot.block,
        "stratum": slot.stratum,
        "order": slot.order,
        "seed": slot.seed,
        "attempt": attempt.number,
        "outcome": attempt.outcome,
        "tags": " ".join(attempt.tags),
        "started_at": attempt.started_at,
        "duration_s": attempt.duration_s,
        "detail": attempt.detail,
    }
    row |= {f"noise_{name}": x for name, x in attempt.noise.items()}
    if attempt.record is None:
        return row
    row |= {f"mark_{name}_s": x for name, x in attempt.record.marks.items()}
    row |= {f"memory_{name}": x for name, x in attempt.record.memory.items()}
    return row | {"ledger": canonical(attempt.record.ledger)}


def _samples(store: Store) -> Iterator[Row]:
    for attempt in store.attempts():
        for name, values in (attempt.record.samples if attempt.record else {}).items():
            for call, value in enumerate(values):
                yield dict(zip(SAMPLE_COLUMNS, (attempt.slot, attempt.number, call, name, value), strict=True))


def _ratios(store: Store) -> Iterator[Row]:
    """Of trainings: other programs are compared by what they report themselves."""
    if {cell.kind for cell in store.cells().values()} != {"training"}:
        return
    for stratum in range(len(store.strata())):
        yield from ratios.ratio_rows(read(store, stratum=stratum), stratum)


def _flat(value: Any) -> Any:
    """A value that fits into one cell of a table."""
    return value if value is None or isinstance(value, str | int | float) else canonical(value)


def harmless(text: str) -> str:
    """Text no spreadsheet computes: an apostrophe before what could begin a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text


def _encodable(value: Any) -> Any:
    """Halves of surrogate pairs, which no file can hold, are spelled out."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    def cell(value: Any) -> Any:
        return harmless(_encodable(value)) if isinstance(value, str) else value

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([cell(name) for name in columns])
        writer.writerows([cell(row.get(name)) for name in columns] for row in rows)


def _write_json(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A list of objects, one to a line."""
    with path.open("w", encoding="utf-8") as file:
        separator = "[\n"
        for row in rows:
            file.write(separator + json.dumps({name: row.get(name) for name in columns}, allow_nan=False))
            separator = ",\n"
        file.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_parquet(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    _frame(columns, rows).write_parquet(path)


def _frame(columns: Sequence[str], rows: Iterable[Row]) -> "polars.DataFrame":
    import polars

    frames, source = [], iter(rows)
    while batch := list(islice(source, BATCH)):
        data = {_encodable(name): [_encodable(row.get(name)) for row in batch] for name in columns}
        schema = {name: getattr(polars, _kind(values)) for name, values in data.items()}
        frames.append(polars.DataFrame(data, schema=schema, strict=False))
    empty = polars.DataFrame(schema={_encodable(name): polars.Null for name in columns})
    # Batches may see different kinds of number in a column; the wider one holds both.
    return polars.concat([empty, *frames], how="vertical_relaxed")


def _kind(values: Sequence[Any]) -> str:
    """The narrowest type of polars that holds all values."""
    kinds = {type(x) for x in values} - {type(None)}
    if not kinds:
        return "Null"
    if kinds == {bool}:
        return "Boolean"
    if kinds == {int}:
        return "Int64"
    return "Float64" if kinds <= {int, float} else "String"


WRITERS: Mapping[str, Writer] = {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}
