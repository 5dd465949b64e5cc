"""Backends side by side: the matrix, parity, and what was measured."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchback import envs, registry
from benchback.analysis.wording import ratio_text
from benchback.cli.tables import table
from benchback.measure.micro.operations import OPERATIONS


def print_matrix(as_json: bool) -> None:
    """Algorithms x backends x modes x units, and the environments."""
    if as_json:
        backends = {
            name: {"title": s.title, "family": s.family, "modes": s.modes, "best": s.best, "units": s.units}
            for name, s in registry.BACKENDS.items()
        }
        algorithms = {name: asdict(known) | {"backends": backends} for name, known in registry.ALGORITHMS.items()}
        print(json.dumps({"algorithms": algorithms, "environments": envs.ids()}, indent=2))
        return
    console = Console()
    for algorithm, known in registry.ALGORITHMS.items():
        rows = [
            (name, s.title, " ".join(f"[b]{m}[/b]" if m == s.best else m for m in s.modes), " ".join(s.units))
            for name, s in registry.BACKENDS.items()
        ]
        console.print(
            table(f"{algorithm}: {known.title}", ("backend", "framework", "modes (best in bold)", "units"), rows)
        )
    for suite, names in envs.SUITES.items():
        more = f"  ... {envs.EXTERNAL[suite]}" if suite in envs.EXTERNAL else ""
        console.print(f"[b]{suite}/[/b]  " + "  ".join(names) + more, highlight=False)


def print_parity(rows: Iterable[Any], as_json: bool) -> bool:
    """The deviation closest to its tolerance for each backend, level and dtype; whether all are within."""
    console, failed, worst = Console(stderr=True), False, {}
    with console.status("measuring parity") as status:
        for row in rows:
            failed |= not row.ok
            key = (row.backend, row.level, row.dtype)
            if key not in worst or strain(row) > strain(worst[key]):
                worst[key] = row
            status.update(f"measuring parity: {row.backend} {row.level} {row.dtype}")
    if as_json:
        listed = [
            {name: getattr(r, name) for name in ("algorithm", *PARITY_COLUMNS)} | {"ok": r.ok} for r in worst.values()
        ]
        print(json.dumps({"ok": not failed, "rows": listed}, indent=2))
        return not failed
    cells = [
        (
            r.backend,
            r.level,
            r.dtype,
            r.quantity,
            f"{r.deviation:.1e}",
            f"{r.tolerance:.1e}",
            "pass" if r.ok else "FAIL",
        )
        for r in worst.values()
    ]
    Console().print(table("largest deviation against its tolerance", (*PARITY_COLUMNS, "verdict"), cells))
    return not failed


def strain(row: Any) -> float:
    """How much of its tolerance a deviation uses up; infinite where it must be zero and is not, or is no number."""
    if row.ok:
        return row.deviation / row.tolerance if row.tolerance else 0.0
    return math.inf


PARITY_COLUMNS = ("backend", "level", "dtype", "quantity", "deviation", "tolerance")


def print_peers(lines: list[dict[str, Any]], as_json: bool) -> None:
    """One line per workload and side; ratios say how many times as fast benchback's sides are."""
    if as_json:
        print(json.dumps(lines, indent=2))
        return
    own = list(dict.fromkeys(line["side"] for line in lines if line["own"]))
    columns = ("workload", "side", "env steps/s", "GFLOP/s", "compile s", "peak MB", "return")
    rows = [
        (line["workload"], line["side"], f"[red]{line['error'][:60]}[/red]", *[""] * 4)
        if line["steps_per_s"] is None
        else (
            line["workload"],
            line["side"],
            f"{line['steps_per_s']:,.0f}",
            arithmetic(line),
            f"{line['compile_s']:.1f}",
            f"{line['peak_rss_bytes'] / 1e6:,.0f}",
            "-" if line["episode_return"] is None else f"{line['episode_return']:.1f}",
        )
        for line in lines
    ]
    Console().print(table("every side", columns, rows))
    others = [line for line in lines if line["steps_per_s"] is not None and line["ratios"]]
    rows = [(line["workload"], line["side"], *(ratio(line["ratios"].get(name)) for name in own)) for line in others]
    columns = ("workload", "than", *(f"{name} is" for name in own))
    Console().print(table("how many times as fast, with 95 % interval ([?]: too few blocks to tell)", columns, rows))
    for line in lines:
        differs = ", ".join(f"{name}={value}" for name, value in line["differs"].items())
        note = "; ".join(filter(None, (line["note"], differs and f"differs in {differs}", line["error"])))
        print(f"{line['workload']} {line['side']}: {note}\n    {json.dumps(line['config'], sort_keys=True)}")


def arithmetic(line: dict[str, Any]) -> str:
    """`41.2 (72 %)`: of the updates, and which part that is of the same matrix products alone."""
    if line["flops_per_s"] is None:
        return ""
    return f"{line['flops_per_s'] / 1e9:.1f} ({line['fraction_of_limit']:.0%})"


WIDEST = 10.0
"""Of an interval, end over end, that is worth its place; two noisy blocks give wider ones."""


def ratio(found: dict[str, Any] | None) -> str:
    """`1.42x [1.38, 1.46]`, without the interval where one block gives none; `1.4x [?]` where it would say nothing."""
    return ratio_text(found["ratio"], found["low"], found["high"], widest=WIDEST) if found else ""


def print_micro(rows: list[dict[str, Any]], as_json: bool) -> None:
    """One table per operation; times in microseconds."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("batch", "backend", "mode", "call us", "dispatch us", "compute us", "times rival")
    for operation in dict.fromkeys(row["operation"] for row in rows):
        mine = [row for row in rows if row["operation"] == operation]
        cells = [
            (
                str(row["batch"]),
                row["backend"],
                row["mode"],
                f"{row['call_s'] * 1e6:,.1f} [{row['call_low_s'] * 1e6:,.1f}, {row['call_high_s'] * 1e6:,.1f}]",
                f"{row['dispatch_s'] * 1e6:,.1f}",
                f"{row['compute_s'] * 1e6:,.1f}",
                ratio(row["ratio"]),
            )
            for row in mine
        ]
        Console().print(table(f"{operation}: {OPERATIONS[operation]}; rival {mine[0]['rival']}", columns, cells))
    idioms = {(row["backend"], row["mode"]): row["idiom"] for row in rows if row["operation"] == "forward"}
    for (backend, mode), idiom in idioms.items():
        print(f"{backend}/{mode}: {idiom}")
    for row in rows:
        if "fraction_of_limit" in row:
            who = f"update, batch {row['batch']}, {row['backend']}/{row['mode']}"
            print(
                f"{who}: {row['flops_per_s'] / 1e9:.1f} GFLOP/s, "
                f"{row['fraction_of_limit']:.0%} of the {row['limit_flops_per_s'] / 1e9:.1f} of the same product alone"
            )


def print_scale(lines: list[dict[str, Any]], out: Path, as_json: bool) -> None:
    """One line per point, the knee marked."""
    if as_json:
        print(json.dumps({"folder": str(out), "rows": lines}, indent=2))
        return
    columns = ("backend", "axis", "value", "env steps/s", "range", "rollout", "update", "peak MB", "")
    rows = [
        (line["backend"], line["axis"], str(line["value"]), line["error"][:60], "", "", "", "", "")
        if line["steps_per_s"] is None
        else (
            line["backend"],
            line["axis"],
            str(line["value"]),
            f"{line['steps_per_s']:,.0f}",
            f"{line['slowest']:,.0f} - {line['fastest']:,.0f}",
            f"{line['rollout_steps_per_s']:,.0f}",
            f"{line['update_steps_per_s']:,.0f}",
            f"{line['peak_rss_bytes'] / 1e6:,.0f}",
            "knee" if line["knee"] else "",
        )
        for line in lines
    ]
    Console().print(table("PPO on CartPole, 64 steps, 4 epochs, 4 minibatches", columns, rows))
    print(f"files in {out}")
