"""A run as it goes, and how well an agent plays."""

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from benchback.cli.tables import jsonable
from benchback.run import Run
from benchback.run_dir import RunDir
from benchback.tools.play import Episode

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

    def finish(self, run_dir: RunDir, interrupted: bool) -> None:
        """Say how it ended and where the files are."""
        if self.as_json:
            print(json.dumps({"event": "interrupted" if interrupted else "done", "folder": str(run_dir.path)}))
        elif interrupted:
            print(f"interrupted; continue with: benchback train --resume {run_dir.path}")
        elif not self.last_row:
            print(f"no episode ended, or nothing was left to train; files in {run_dir.path}")
        else:
            print(f"return {self.last_row.get('episode_return', math.nan):.1f}; files in {run_dir.path}")


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


def print_episodes(run: Run, iteration: int, shown: Sequence[Episode], out: Path, as_json: bool) -> None:
    """What became of the episodes in a video, and where it is."""
    if as_json:
        about = {"env": run.env, "backend": run.backend, "iteration": iteration, "video": str(out)}
        print(json.dumps(about | {"episodes": [asdict(episode) for episode in shown]}))
        return
    for number, episode in enumerate(shown, 1):
        how = "" if episode.ended else ", not ended"
        print(f"episode {number}: return {episode.episode_return:.1f} in {episode.steps} steps{how}")
    print(f"{run.env} {run.backend} after {iteration} iterations; video in {out}")
