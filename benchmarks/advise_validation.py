"""How well `benchback advise` predicts: eight projects it was not built on, against whole trainings.

    python benchmarks/advise_validation.py [--budget 90] [--only 0 3] [--out runs/advise_validation.jsonl]

For each project the prediction comes first, with seeds=1; then each candidate trains once from start to end in a fresh
process with empty caches. Everything is appended to the file as it is known: run again, it goes on where it stopped.
At its end it prints a table in Markdown, the median error, and the pairs that were ranked wrongly though their
intervals were apart; exit code 1 if there are any, or if the median error is above 10 %.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from benchback.analysis.advice import Answer
from benchback.analysis.advice_wording import record_of
from benchback.cli.arguments import on_stop
from benchback.measure.candidates import Question
from benchback.measure.process import Interrupted, run_cell
from benchback.measure.record import Cell
from benchback.measure.trials import trials
from benchback.measure.wire import parse_record
from benchback.tools.advise import Hooks, advise

TIMEOUT_S = 600.0
LARGEST_ERROR = 0.10
MOST_CANDIDATES = 3


@dataclass(frozen=True)
class Project:
    """A configuration; iterations are such that a training takes half a minute or so after its start."""

    algorithm: str
    env: str
    hidden: tuple[int, ...]
    iterations: int
    backends: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """`ppo Acrobot-v1 128x128`."""
        return f"{self.algorithm} {self.env.rpartition('/')[2]} {'x'.join(map(str, self.hidden))}"

    @property
    def question(self) -> Question:
        """One training of it."""
        fields = {"algorithm": self.algorithm, "env": self.env, "hidden_sizes": list(self.hidden), **self.fields}
        batch = Question(fields, 10**9, 1, self.backends).config.batch_size
        return Question(fields, self.iterations * batch, 1, self.backends)


ROLLOUT = {"num_envs": 16, "num_steps": 64, "num_epochs": 2, "num_minibatches": 4}
PROJECTS = (
    Project("ppo", "gymnax/Acrobot-v1", (128, 128), 400, ("equinox", "pytorch"), ROLLOUT),
    Project("ppo", "gymnax/Freeway-MinAtar", (64, 64), 300, ("linen", "purejax", "pytorch"), ROLLOUT),
    Project("ppo", "gymnax/Pendulum-v1", (256, 256), 150, ("haiku", "pytorch"), ROLLOUT),
    Project("vpg", "gymnax/MountainCar-v0", (32,), 150, ("nnx", "pytorch"), {"num_envs": 8, "num_steps": 64}),
    Project("vpg", "gymnax/Catch-bsuite", (512,), 80, ("purejax", "pytorch"), {"num_envs": 32, "num_steps": 32}),
    Project("dqn", "gymnax/Acrobot-v1", (120, 84), 12_000, ("linen", "pytorch")),
    Project("dqn", "gymnax/Breakout-MinAtar", (256,), 6_000, ("equinox", "haiku", "pytorch")),
    Project("td3", "gymnax/Pendulum-v1", (64, 64), 200, ("nnx", "pytorch")),
)


class Results:
    """The lines of a file, one per prediction and per training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def add(self, line: dict[str, Any]) -> None:
        """Append a line, to the file as well."""
        self.lines.append(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def prediction(self, project: Project) -> dict[str, Any] | None:
        """The prediction for a project, if it was made."""
        found = (x for x in self.lines if x["kind"] == "prediction" and x["project"] == project.title)
        return next(found, None)

    def seconds(self, project: Project, variant: str) -> float | None:
        """What a training took, if it was run."""
        found = (x for x in self.lines if x["kind"] == "training" and x["project"] == project.title)
        return next((x["seconds"] for x in found if x["variant"] == variant), None)


def predict(project: Project, budget_s: float, results: Results, stop: Callable[[], bool]) -> None:
    """Add the prediction for a project, and the cells of the candidates to run."""

    def show(what: str, spent_s: float, budget_s: float) -> None:
        if not what.startswith("round"):
            print(f"  {what}, {spent_s:.0f} of {budget_s:.0f} s", file=sys.stderr)

    with trials() as run_trial:
        answer = advise(project.question, budget_s, Hooks(run_trial, stop, progress=show))
    if answer.interrupted:
        raise KeyboardInterrupt
    cells = {cell.variant: cell.to_dict() for cell in compared(answer)}
    results.add({"kind": "prediction", "project": project.title, "answer": record_of(answer), "cells": cells})


def compared(answer: Answer) -> list[Cell]:
    """The candidates to run: the first of the ranking, and those called phase by phase; of the length asked about."""
    cells = [row.forecast.cell for row in answer.ranked]
    chosen = [cells[0], *(cell for cell in cells[1:] if cell.run["unit"] == "phase")][:MOST_CANDIDATES]
    slowest = next(cell for cell in reversed(cells) if cell.run["unit"] == "phase")
    chosen = list({cell.id: cell for cell in [*chosen[: MOST_CANDIDATES - 1], slowest]}.values())
    return [of_length(cell, answer.question.iterations) for cell in chosen]


def of_length(cell: Cell, iterations: int) -> Cell:
    """The cell with so many iterations, in whole calls."""
    length = cell.run["chunk"] if cell.run["unit"] == "chunk" else 1
    return replace(cell, run={**cell.run, "num_iterations": -(-iterations // length) * length})


def train(project: Project, results: Results, stop: Callable[[], bool]) -> None:
    """Run the candidates of a predicted project that have not been run."""
    prediction = results.prediction(project)
    assert prediction is not None
    for variant, fields in prediction["cells"].items():
        if results.seconds(project, variant) is None:
            print(f"  {variant} trains", file=sys.stderr)
            ended = run_cell(Cell.from_dict(fields), 1000, TIMEOUT_S, lambda: not stop())
            if ended.outcome != "ok":
                raise RuntimeError(f"{project.title} {variant}: {ended.outcome} {ended.detail}")
            seconds = parse_record(ended.messages[0]["record"]).marks["finished"]
            results.add({"kind": "training", "project": project.title, "variant": variant, "seconds": seconds})


def rows(results: Results) -> list[dict[str, Any]]:
    """Predicted and measured seconds of every training that was run."""
    found = []
    for project in PROJECTS:
        prediction = results.prediction(project)
        for candidate in prediction["answer"]["candidates"] if prediction else ():
            measured = results.seconds(project, candidate["variant"])
            if measured is not None:
                total = candidate["total_s"]
                row = {"project": project.title, "name": candidate["name"], "measured": measured, **total}
                found.append(row | {"error": total["value"] / measured - 1})
    return found


def wrong(found: list[dict[str, Any]]) -> list[str]:
    """Pairs of a project whose predicted intervals are apart and whose measured order is the other one."""
    said = []
    for a, b in combinations(found, 2):
        first, second = (a, b) if a["value"] < b["value"] else (b, a)
        if a["project"] == b["project"] and first["high"] < second["low"] and first["measured"] > second["measured"]:
            said.append(f"{a['project']}: {first['name']} before {second['name']}")
    return said


def print_table(found: list[dict[str, Any]]) -> None:
    """Print predictions against trainings in Markdown."""
    print("| project | candidate | predicted s | interval | measured s | error |\n|---|---|---|---|---|---|")
    for x in found:
        predicted = f"{x['value']:.1f} | {x['low']:.1f} to {x['high']:.1f}"
        print(f"| {x['project']} | {x['name']} | {predicted} | {x['measured']:.1f} | {x['error']:+.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="predictions of advise against whole trainings")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds of a prediction")
    parser.add_argument("--only", type=int, nargs="*", default=range(len(PROJECTS)), help="projects by number")
    parser.add_argument("--out", type=Path, default=Path("runs/advise_validation.jsonl"))
    options = parser.parse_args()
    stop, results = on_stop(), Results(options.out)
    for number in options.only:
        project = PROJECTS[number]
        print(f"{project.title} ({number + 1} of {len(PROJECTS)})", file=sys.stderr)
        try:
            if results.prediction(project) is None:
                predict(project, options.budget, results, stop)
            train(project, results, stop)
        except (Interrupted, KeyboardInterrupt):
            sys.exit(130)
    found = rows(results)
    print_table(found)
    error, misranked = statistics.median(abs(x["error"]) for x in found), wrong(found)
    inside = sum(x["low"] <= x["measured"] <= x["high"] for x in found)
    print(f"\nmedian error {error:.1%}; {inside} of {len(found)} trainings within their interval")
    print(f"ranked wrongly with intervals apart: {'; '.join(misranked) or 'none'}")
    sys.exit(1 if misranked or error > LARGEST_ERROR else 0)


if __name__ == "__main__":
    main()
