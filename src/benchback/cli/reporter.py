"""How a training is shown while it runs: a bar on a terminal, plain lines otherwise, JSON lines for machines."""

import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from benchback.cli.tables import jsonable
from benchback.training.run import Run

if TYPE_CHECKING:
    from benchback.training.run_dir import Finished

LINES_APART_S = 1.0
"""Seconds between two plain lines."""


def progress_bar(console: Console, *, hidden: bool) -> Progress:
    """A bar with a status for each task; on a terminal only."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
        console=console,
        disable=hidden or not console.is_terminal,
    )


class Reporter:
    """Shows the progress of a training: a bar on a terminal, plain lines otherwise, JSON lines for machines."""

    def __init__(self, run: Run, done: int, as_json: bool):
        self.run, self.as_json, self.last_row, self.last_line_s = run, as_json, {}, 0.0
        self.first_row, self.evaluation, self.agents = {}, {}, 1
        self.console = Console(stderr=True)
        self.bar = progress_bar(self.console, hidden=as_json)
        title = f"{run.algorithm} {run.backend} {run.env}"
        self.task = self.bar.add_task(title, total=run.config.num_iterations, completed=done, status="compiling")

    def __call__(self, rows: list[dict[str, Any]]) -> None:
        """Show the newest rows."""
        for row in rows:
            if not math.isnan(row["episode_return"]):
                self.last_row = row
            if self.as_json:
                print(json.dumps({"event": "iteration"} | jsonable(row)), flush=True)
        status = f"{self.status()}{self.speed(rows)}"
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

    def status(self) -> str:
        """The newest results in a few words."""
        evaluated = f", evaluated {self.evaluation['return_mean']:.1f}" if self.evaluation else ""
        return f"return {self.last_row.get('episode_return', math.nan):.1f}{evaluated}"

    def speed(self, rows: list[dict[str, Any]]) -> str:
        """Environment steps a second since the first call, which compiles; nothing before the second."""
        first, last = self.first_row, rows[-1]
        self.first_row = self.first_row or last
        if not first or last["seconds"] <= first["seconds"]:
            return ""
        steps = (last["env_steps"] - first["env_steps"]) * self.agents
        return f"  {steps / (last['seconds'] - first['seconds']):,.0f} steps/s"

    def evaluated(self, row: dict[str, Any]) -> None:
        """Show an evaluation."""
        self.evaluation = row
        if self.as_json:
            print(json.dumps({"event": "evaluation"} | jsonable(row)), flush=True)
        elif not self.console.is_terminal:
            steps = f"{row['env_steps']:,} steps"
            print(f"evaluated after {steps}: {row['return_mean']:.1f} +- {row['return_std']:.1f}", file=sys.stderr)

    def warn(self, line: str) -> None:
        """Show a warning beside the bar."""
        self.console.print(f"warning: {line}", highlight=False, markup=False, soft_wrap=True)

    def finish(self, finished: "Finished") -> None:
        """Print how it ended and the paths of the files."""
        path, told = finished.run_dir.path, self.last_row.get("episode_return", math.nan)
        if self.as_json:
            event = {"event": "interrupted" if finished.interrupted else "done", "folder": str(path)}
            print(json.dumps(event | ({} if finished.reached is None else {"reached": finished.reached})))
        elif finished.interrupted:
            print(f"interrupted; continue with: benchback train --resume {path}")
        elif finished.reached is not None:
            print(f"reached a return of {finished.reached:.1f} in iteration {finished.iteration}; files in {path}")
        elif not self.last_row:
            print(f"no episode ended, or nothing was left to train; files in {path}")
        else:
            print(f"return {told:.1f}; files in {path}")


@contextmanager
def reporter(run: Run, done: int, as_json: bool) -> Iterator[Reporter]:
    """A Reporter whose bar is on screen while the context lasts."""
    report = Reporter(run, done, as_json)
    with report.bar:
        yield report
