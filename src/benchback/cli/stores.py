"""Verbs that read a store: `status`, `list-runs`, `show`, `verify` and `export`."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from benchback.cli.arguments import parse_named
from benchback.cli.tables import table
from benchback.errors import InputError
from benchback.measure.store import Store, open_store


@dataclass(frozen=True)
class StoreFlags:
    """Look into a store."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ExportFlags:
    """Write a store's runs and samples as tables."""

    format: Literal["csv", "json", "parquet"] = "csv"
    """Kind of file."""
    out: Path = Path("export")
    """Folder to write to."""
    json: bool = False
    """Print JSON."""


def opened(arguments: list[str], verb: str, flags_type: type = StoreFlags) -> tuple[Any, Any]:
    """The store of the first argument, read-only, and the flags."""
    path, flags = store_path(arguments, verb, flags_type)
    return open_store(path, readonly=True), flags


def store_path(arguments: list[str], verb: str, flags_type: type = StoreFlags) -> tuple[Path, Any]:
    """The path in the first argument, and the flags."""
    path, flags = parse_named(flags_type, arguments, verb, "STORE", "a store, e.g. runs/smoke.sqlite")
    return Path(path), flags


def status(arguments: list[str]) -> int:
    store, flags = opened(arguments, "status")
    with store:
        print_status(store, flags.json)
    return 0


def list_runs(arguments: list[str]) -> int:
    store, flags = opened(arguments, "list-runs")
    with store:
        print_runs(store, flags.json)
    return 0


def show_run(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[1].startswith("-"):
        raise InputError("show needs a store and a run, e.g. show runs/smoke.sqlite CELL/BLOCK; list-runs names them")
    store, flags = opened([arguments[0], *arguments[2:]], "show")
    with store:
        print_run(store, arguments[1], flags.json)
    return 0


def verify(arguments: list[str]) -> int:
    from benchback.measure.verify import verify

    path, flags = store_path(arguments, "verify")
    if not path.is_file():
        raise InputError(f"{path} is not a file; give a store that `benchback run` wrote")
    problems = verify(path)
    print_problems(path, problems, flags.json)
    return 1 if problems else 0


def export(arguments: list[str]) -> int:
    from benchback.analysis.export import export

    store, flags = opened(arguments, "export", ExportFlags)
    with store:
        print_files(export(store, flags.out, flags.format), flags.json)
    return 0


def print_status(store: Store, as_json: bool) -> None:
    """Print the progress of a campaign."""
    campaign, counts = store.campaign(), store.progress()
    found = {"store": str(store.path), "study": campaign["study"]["name"], "note": campaign.get("note", "")}
    found |= {"comparable": campaign.get("comparable", True), "strata": len(store.strata())}
    found |= {"slots": asdict(counts) | {"open": counts.open}, "events": [asdict(e) for e in store.events()]}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['study']}: {counts.ok} of {counts.total} runs done, {counts.failed} failed, ", end="")
    print(f"{counts.running} running, {counts.open} open" + ("" if found["comparable"] else "; not comparable"))
    if found["note"]:
        print(found["note"])
    for event in store.events():
        print(f"{event.at}  {event.kind}: {json.dumps(event.detail)[:200]}")


def print_runs(store: Store, as_json: bool) -> None:
    """Print every attempt, oldest first."""
    from benchback.analysis.reader import stored_attempts

    rows = [
        {"slot": a.slot, "attempt": a.number, "variant": cell.variant, "outcome": a.outcome, "env": cell.run["env"]}
        | {
            "agents": cell.members,
            "name": cell.name,
            "duration_s": a.duration_s,
            "tags": a.tags,
            "detail": a.detail,
            "started_at": a.started_at,
        }
        for _, cell, a in stored_attempts(store)
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("run", "try", "env", "variant", "outcome", "seconds", "tags", "detail")
    cells_of = [
        (
            r["slot"],
            str(r["attempt"]),
            r["env"],
            r["name"],
            r["outcome"],
            f"{r['duration_s']:.1f}",
            " ".join(r["tags"]),
            r["detail"][:60],
        )
        for r in rows
    ]
    Console().print(table(str(store.path), columns, cells_of))


def print_run(store: Store, slot: str, as_json: bool) -> None:
    """Print all attempts at one slot, with everything measured."""
    attempts = list(store.attempts(slot))
    if not attempts:
        raise InputError(f"run={slot} has no attempts in {store.path}; `benchback list-runs {store.path}` names them")
    if as_json:
        print(json.dumps([asdict(a) for a in attempts], indent=2))
        return
    for attempt in attempts:
        print(f"{attempt.slot} attempt {attempt.number}: {attempt.outcome} {attempt.detail}")
        print(f"  started {attempt.started_at}, {attempt.duration_s:.1f} s, tags: {' '.join(attempt.tags) or 'none'}")
        print(f"  noise: {json.dumps({k: round(v, 4) for k, v in attempt.noise.items()})}")
        if attempt.record:
            print(f"  marks: {json.dumps({k: round(v, 3) for k, v in attempt.record.marks.items()})}")
            print(f"  ledger: {json.dumps(attempt.record.ledger)}")
            for name, values in attempt.record.samples.items():
                known = [x for x in values if x is not None]
                middle = f"median {statistics.median(known):.6g}" if known else "no values"
                print(f"  {name}: {len(values)} values, {middle}")
        elif attempt.log:
            print("  " + "\n  ".join(attempt.log.strip().splitlines()[-20:]))


def print_problems(path: Path, problems: Sequence[str], as_json: bool) -> None:
    """Print the problems of a store."""
    if as_json:
        print(json.dumps({"store": str(path), "ok": not problems, "problems": list(problems)}, indent=2))
    else:
        print("\n".join(problems) if problems else f"{path}: nothing wrong")


def print_files(paths: Sequence[Path], as_json: bool) -> None:
    """Print the path of an export."""
    print(json.dumps([str(path) for path in paths]) if as_json else "\n".join(str(path) for path in paths))
