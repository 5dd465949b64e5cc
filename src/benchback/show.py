"""What a person sees in the terminal: progress of a run, and tables. Machines get JSON."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from benchback import envs, registry
from benchback.folder import Folder
from benchback.train import Run

LINES_APART_S = 1.0


class Reporter:
    """Tells how a run goes: a bar on a terminal, plain lines otherwise, JSON lines for machines."""

    def __init__(self, run: Run, done: int, as_json: bool):
        self.run, self.as_json, self.last_row, self.last_line_s = run, as_json, {}, 0.0
        self.console = Console(stderr=True)
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            disable=as_json or not self.console.is_terminal,
        )
        title = f"{run.algorithm} {run.backend} {run.env}"
        self.task = self.bar.add_task(title, total=run.config.num_iterations, completed=done, status="compiling")

    def __call__(self, rows: list[dict[str, Any]]) -> None:
        """Show the newest rows."""
        for row in rows:
            if not math.isnan(row["episode_return"]):
                self.last_row = row
            if self.as_json:
                print(json.dumps({"event": "iteration"} | jsonable(row)), flush=True)
        status = f"return {self.last_row.get('episode_return', math.nan):.1f}"
        self.bar.update(self.task, completed=rows[-1]["iteration"], status=status)
        due = (
            time.monotonic() - self.last_line_s > LINES_APART_S
            or rows[-1]["iteration"] == self.run.config.num_iterations
        )
        if not self.as_json and not self.console.is_terminal and due:
            self.last_line_s = time.monotonic()
            total = self.run.config.num_iterations
            print(
                f"iteration {rows[-1]['iteration']}/{total}  {rows[-1]['seconds']:.1f} s  {status}",
                file=sys.stderr,
            )

    def finish(self, folder: Folder, interrupted: bool) -> None:
        """Say how it ended and where the files are."""
        if self.as_json:
            print(json.dumps({"event": "interrupted" if interrupted else "done", "folder": str(folder.path)}))
        elif interrupted:
            print(f"interrupted; continue with: benchback train --resume {folder.path}")
        elif not self.last_row:
            print(f"no episode ended, or nothing was left to train; files in {folder.path}")
        else:
            print(f"return {self.last_row.get('episode_return', math.nan):.1f}; files in {folder.path}")


@contextmanager
def reporter(run: Run, done: int, as_json: bool) -> Iterator[Reporter]:
    """A Reporter whose bar is on screen while the context lasts."""
    report = Reporter(run, done, as_json)
    with report.bar:
        yield report


def print_evaluation(run: Run, iteration: int, returns: np.ndarray, as_json: bool) -> None:
    """Mean and spread of the returns of finished episodes."""
    finished = returns[~np.isnan(returns)]
    summary = {
        "env": run.env,
        "backend": run.backend,
        "iteration": iteration,
        "episodes": int(finished.size),
        "unfinished": int(returns.size - finished.size),
        "mean": float(finished.mean()) if finished.size else None,
        "std": float(finished.std()) if finished.size else None,
        "min": float(finished.min()) if finished.size else None,
        "max": float(finished.max()) if finished.size else None,
    }
    if as_json:
        print(json.dumps(summary))
    elif finished.size:
        print(
            "{env} {backend}: return {mean:.1f} +- {std:.1f} (min {min:.1f}, max {max:.1f})".format(**summary),
            end="",
        )
        print(f" over {summary['episodes']} episodes, {summary['unfinished']} unfinished")
    else:
        print(f"{run.env} {run.backend}: no episode finished")


def print_matrix(as_json: bool) -> None:
    """Algorithms x backends x modes x units, and the environments."""
    if as_json:
        backends = {
            name: {"title": s.title, "family": s.family, "modes": s.modes, "best": s.best, "units": s.units}
            for name, s in registry.BACKENDS.items()
        }
        algorithms = {name: {"title": title, "backends": backends} for name, title in registry.ALGORITHMS.items()}
        print(json.dumps({"algorithms": algorithms, "environments": envs.ids()}, indent=2))
        return
    console = Console()
    for algorithm, title in registry.ALGORITHMS.items():
        rows = [
            (name, s.title, " ".join(f"[b]{m}[/b]" if m == s.best else m for m in s.modes), " ".join(s.units))
            for name, s in registry.BACKENDS.items()
        ]
        console.print(table(f"{algorithm}: {title}", ("backend", "framework", "modes (best in bold)", "units"), rows))
    for suite, names in envs.SUITES.items():
        console.print(f"[b]{suite}/[/b]  " + "  ".join(names), highlight=False)


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


def print_demo(outcome: list[dict[str, Any]], out: Path, as_json: bool) -> None:
    """One line per backend: how fast, how well, how long to compile, proven equal or not."""
    if as_json:
        print(json.dumps({"folder": str(out), "rows": [jsonable(row) for row in outcome]}, indent=2))
        return
    columns = ("backend", "mode", "env steps/s", "return", "compile s", "parity")
    rows = [
        (r["backend"], r["mode"], r["error"], "", "", "")
        if r["error"]
        else (
            r["backend"],
            r["mode"],
            f"{r['steps_per_s']:,.0f}",
            f"{r['return']:.1f}",
            f"{r['compile_s']:.1f}",
            r["parity"],
        )
        for r in outcome
    ]
    Console().print(table("PPO on CartPole-v1, one run each: a first look, not a verdict", columns, rows))
    print(f"files in {out}")


@contextmanager
def measuring() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for work that reports (what is under way, how much is done, of how much)."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def print_peers(lines: list[dict[str, Any]], as_json: bool) -> None:
    """One line per workload and side; ratios say how many times as fast benchback's sides are."""
    if as_json:
        print(json.dumps(lines, indent=2))
        return
    own = list(dict.fromkeys(line["side"] for line in lines if line["own"]))
    columns = ("workload", "side", "env steps/s", *(f"{name} is" for name in own), "compile s", "peak MB", "return")
    rows = [
        (line["workload"], line["side"], f"[red]{line['error'][:60]}[/red]", *[""] * (len(own) + 3))
        if line["steps_per_s"] is None
        else (
            line["workload"],
            line["side"],
            f"{line['steps_per_s']:,.0f}",
            *(ratio(line["ratios"].get(name)) for name in own),
            f"{line['compile_s']:.1f}",
            f"{line['peak_rss_bytes'] / 1e6:,.0f}",
            "-" if line["episode_return"] is None else f"{line['episode_return']:.1f}",
        )
        for line in lines
    ]
    Console().print(table("ratios: how many times as fast, with 95 % interval", columns, rows))
    for line in lines:
        differs = ", ".join(f"{name}={value}" for name, value in line["differs"].items())
        note = "; ".join(filter(None, (line["note"], differs and f"differs in {differs}", line["error"])))
        print(f"{line['workload']} {line['side']}: {note}\n    {json.dumps(line['config'], sort_keys=True)}")


def ratio(found: dict[str, Any] | None) -> str:
    """`1.42x [1.38, 1.46]`, without the interval where one block gives none."""
    if not found:
        return ""
    interval = "" if found["low"] is None else f" [{found['low']:.2f}, {found['high']:.2f}]"
    return f"{found['ratio']:.2f}x{interval}"


def table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    """A plain table."""
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*row)
    return made


def jsonable(row: dict[str, Any]) -> dict[str, Any]:
    """The row with NaN, which JSON does not know, as null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}
