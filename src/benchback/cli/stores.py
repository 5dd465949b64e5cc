"""Verbs that read a store: `status`, `list-runs`, `show`, `verify` and `export`."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from benchback.cli.arguments import asks_for_help, parse, parse_named
from benchback.cli.help import example
from benchback.cli.tables import short_envs, table
from benchback.errors import InputError
from benchback.measure.lease import Event
from benchback.measure.store import Store, open_store

MOST_CANDIDATES = 6
"""Most runs that are named when a beginning fits several."""


@dataclass(frozen=True)
class StoreFlags:
    """Look into a store."""

    json: bool = False
    """Print JSON."""


class StatusFlags(StoreFlags):
    """How many runs of a campaign are done, failed, running and open, and what happened to it."""


class RunsFlags(StoreFlags):
    """Every attempt at every run of a campaign, oldest first: outcome, seconds, tags, and why it failed."""


class ShowFlags(StoreFlags):
    """All attempts at one run with everything that was measured. RUN is its name or the beginning of it."""


class VerifyFlags(StoreFlags):
    """Whether a store can be believed: checksums, ledgers, seeds. Exit code 1 if anything is wrong."""


@dataclass(frozen=True)
class ExportFlags:
    """Write a store's runs, samples and the ratios of its claims as tables."""

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
    path, flags = parse_named(flags_type, arguments, verb, "STORE", "a store")
    return Path(path), flags


def status(arguments: list[str]) -> int:
    store, flags = opened(arguments, "status", StatusFlags)
    with store:
        print_status(store, flags.json)
    return 0


def list_runs(arguments: list[str]) -> int:
    store, flags = opened(arguments, "list-runs", RunsFlags)
    with store:
        print_runs(store, flags.json)
    return 0


def show_run(arguments: list[str]) -> int:
    if asks_for_help(arguments):
        parse(ShowFlags, arguments, "show STORE RUN")
    if len(arguments) < 2 or any(x.startswith("-") for x in arguments[:2]):
        raise InputError(f"show needs a store and a run first, e.g. {example('show')}; list-runs names them")
    flags = parse(ShowFlags, arguments[2:], "show STORE RUN")
    with open_store(Path(arguments[0]), readonly=True) as store:
        print_run(store, tried_slot(store, arguments[1]), flags.json)
    return 0


def verify(arguments: list[str]) -> int:
    from benchback.measure.verify import verify

    path, flags = store_path(arguments, "verify", VerifyFlags)
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
        print(f"{event.at[:19]}  {event.kind}: {event_text(event)}")


def event_text(event: Event) -> str:
    """An event in a line: of parity how many programs passed, and the others by name."""
    if event.kind != "parity":
        return json.dumps(event.detail)[:200]
    verdicts = event.detail["verdicts"]
    others = [f"{program} ({verdict})" for program, verdict in verdicts.items() if verdict != "pass"]
    return f"{len(verdicts) - len(others)} of {len(verdicts)} programs pass" + "".join(f"; not {x}" for x in others)


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
    columns = ("run", "try", "env", "variant", "outcome", "seconds", "tags")
    suite, names = short_envs([r["env"] for r in rows])
    cells_of = [
        (
            run,
            str(r["attempt"]),
            env,
            r["name"],
            r["outcome"],
            f"{r['duration_s']:.1f}",
            " ".join(r["tags"]),
        )
        for r, run, env in zip(rows, short_slots([r["slot"] for r in rows]), names, strict=True)
    ]
    console = Console()
    title = f"{store.path}" + (f", environments of {suite}" if suite else "")
    console.print(table(escape(title), columns, [tuple(map(escape, cells)) for cells in cells_of]))
    for row in rows:
        if row["detail"]:
            console.print(f"{row['slot']} try {row['attempt']}: {row['detail']}", markup=False, highlight=False)


def short_slots(slots: Sequence[str]) -> list[str]:
    """Names of slots with as many characters of their cells as tell them apart, 8 at least."""
    cells = {slot.partition("/")[0] for slot in slots}
    length = next(n for n in range(8, 100) if len({cell[:n] for cell in cells}) == len(cells))
    return [f"{slot.partition('/')[0][:length]}/{slot.partition('/')[2]}" for slot in slots]


def is_meant(slot: str, beginning: str) -> bool:
    """Whether a name, its beginning, or the beginning of its cell with its block, is that of the slot."""
    cell, slash, block = beginning.partition("/")
    return slot.startswith(beginning) or (bool(slash) and slot.startswith(cell) and slot.partition("/")[2] == block)


def tried_slot(store: Store, beginning: str) -> str:
    """The slot with attempts whose name is `beginning`, or the only one whose name begins so."""
    begun = [slot.id for slot in store.slots() if beginning and is_meant(slot.id, beginning)]
    found = [slot for slot in begun if any(True for _ in store.attempts(slot))]
    if beginning in found or len(found) == 1:
        return beginning if beginning in found else found[0]
    named = f"`benchback list-runs {store.path}` names them"
    if not found:
        raise InputError(f"run={beginning[:100]} has no attempts in {store.path}; {named}")
    listed = ", ".join(found[:MOST_CANDIDATES])
    raise InputError(f"run={beginning[:100]} begins {len(found)} runs, e.g. {listed}; give more of its name, {named}")


def print_run(store: Store, slot: str, as_json: bool) -> None:
    """Print all attempts at one slot, with everything measured."""
    attempts = list(store.attempts(slot))
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
