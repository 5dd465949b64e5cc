"""Verbs about the machine: `doctor`, and what a step of each environment costs on it."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchback.cli.arguments import Imports, asks_for_help, limit_threads, parse
from benchback.cli.help import example
from benchback.cli.tables import measuring, table
from benchback.errors import InputError
from benchback.measure import machine

LONGEST_S = 86400.0
"""Longest examination of the machine."""


@dataclass(frozen=True)
class DoctorFlags:
    """Whether this machine can measure, by an A/A comparison: yes (exit code 0) or no (1), and what to change."""

    seconds: float = 60.0
    """Length of the A/A comparison."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class EnvsFlags:
    """Time a vectorised step of every environment, without any policy."""

    envs: tuple[str, ...] = ()
    """Environments to time; those of the store, else of the study `backends` by default."""
    num_envs: tuple[int, ...] = ()
    """Numbers of environments stepped together; as many as there, and 4096, by default."""
    store: Path | None = None
    """Store of a campaign in which to keep the result, for its report."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def doctor(arguments: list[str]) -> int:
    from benchback.measure.doctor import examine

    flags = parse(DoctorFlags, arguments, "doctor")
    if not 0 < flags.seconds <= LONGEST_S:
        raise InputError(f"seconds={flags.seconds:g} must be greater than 0 and at most {LONGEST_S:g}, e.g. 60")
    with measuring() as progress:
        found = examine(flags.seconds, progress)
    print_examination(found, flags.json)
    return 1 if found["obstacles"] else 0


def environments(arguments: list[str]) -> int:
    from benchback import envs
    from benchback.measure import complexity
    from benchback.measure.store import open_store
    from benchback.measure.study import load

    if asks_for_help(arguments):
        parse(EnvsFlags, arguments, "envs time")
    if not arguments or arguments[0] != "time":
        raise InputError(f"envs knows one thing to do, e.g. {example('envs')}; `benchback list` shows the environments")
    flags = parse(EnvsFlags, arguments[1:], "envs time")
    with nullcontext() if flags.store is None else open_store(flags.store) as store:
        cells = store.cells().values() if store else load("backends").cells
        ids = flags.envs or tuple(dict.fromkeys(cell.run["env"] for cell in cells))
        sizes = flags.num_envs or tuple(dict.fromkeys((*(cell.run["num_envs"] for cell in cells), complexity.LARGE)))
        for id in ids:
            envs.check(id)
            envs.check_installed(id)
        for size in sizes:
            if size < 1:
                raise InputError(f"num_envs={size} must be at least 1")
        limit_threads(1)
        with measuring() as progress:
            rows = complexity.measure(ids, sizes, progress)
        if store:
            store.add_event("complexity", {"stratum": len(store.strata()) - 1, "rows": rows})
    print_complexity(rows, flags.json)
    return 0


def print_examination(found: Mapping[str, Any], as_json: bool) -> None:
    """Print whether the machine can measure, then the findings and the advice."""
    from benchback.analysis.wording import ratio_text

    if as_json:
        print(json.dumps({"can_measure": not found["obstacles"], **found}, indent=2))
        return
    print(answer_text(found))
    rows = [(name, str(value)) for name, value in machine_facts(found).items()]
    Console().print(table("machine", ("what", "value"), rows))
    rows = [
        (name, f"{value:.3g}", f"{machine.LIMITS[name]:.3g}", "too much" if value > machine.LIMITS[name] else "fine")
        for name, value in found["noise"].items()
    ]
    Console().print(table("noise while it was measured", ("what", "seen", "limit", ""), rows))
    spread = found["spread"]
    print(f"the same work varies by {spread['matmul_s']:.1%} (arithmetic) and {spread['memcpy_s']:.1%} (memory)")
    same = found["aa"]
    print(f"A/A: {ratio_text(same['ratio'], same['low'], same['high'])} over {same['pairs']} pairs")
    print("what to change:" if found["advice"] else "nothing to change")
    for line in found["advice"]:
        print(f"- {line}")


def answer_text(found: Mapping[str, Any]) -> str:
    """The doctor's answer: yes with what can be found, or no with why not and the first thing to change."""
    if not found["obstacles"]:
        able = f"differences from {found['detectable']:.1%} on are detectable with {found['blocks']} blocks"
        return f"yes, this machine can measure: {able}"
    change = found["advice"][0] if found["advice"] else "measure again when the machine does nothing else"
    return f"no: {'; '.join(found['obstacles'])}. What to change: {change}"


def machine_facts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the machine, for people: sizes in GB, and the missing ones named."""
    known = dict(found["machine"])
    memory, free = known.pop("memory_bytes") / 1e9, found["free_bytes"] / 1e9
    facts = {"memory": f"{memory:.1f} GB", "free disk here": f"{free:.1f} GB"}
    facts |= {"threads of a worker": "1 unless the study says otherwise", "compile caches": "private to every run"}
    if found["caches"]:
        facts["set in this shell"] = ", ".join(found["caches"])
    return known | facts | {"gpu": known.get("gpu", "none"), "governor": known.get("governor", "not told")}


def print_complexity(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print the seconds of a vectorised step, fastest environment first."""
    if as_json:
        print(json.dumps(list(rows), indent=2))
        return
    ordered = sorted(rows, key=lambda row: (row["num_envs"], row["step_s"]))
    cells = [(r["env"], str(r["num_envs"]), f"{r['step_s'] * 1e6:.1f}", f"{r['relative']:.1f}") for r in ordered]
    Console().print(table("a step of all environments", ("env", "environments", "microseconds", "relative"), cells))
