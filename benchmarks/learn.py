"""Does every backend learn? Every algorithm to its threshold over several seeds; writes tables into docs/learning.md.

Each backend runs in a process of its own: `python benchmarks/learn.py --task ppo-cartpole --backend linen` prints its
rows as JSON; without a backend all of them are run and the tables are written. What is done is kept in
runs/learn.jsonl, so a run that was broken off goes on where it stopped; remove the file to start anew.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from learning_curves import DOCUMENT, write_between
from rich.progress import track

from benchback import registry
from benchback.agent import start
from benchback.cli.arguments import limit_threads
from benchback.training import advance
from benchback.training.evaluate import evaluate
from benchback.training.run import Run, build

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "runs" / "learn.jsonl"


@dataclass(frozen=True)
class Task:
    """What is to be learnt, how well, and how often."""

    algorithm: str
    env: str
    by: Literal["return", "greedy"]
    """What must reach the threshold: the mean return of an iteration, or greedy play at the end."""
    threshold: float
    seeds: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of the run, where it differs from the defaults."""


PPO_PENDULUM = {
    "num_steps": 200,
    "num_iterations": 50,
    "num_minibatches": 16,
    "learning_rate": 1e-3,
    "gamma": 0.95,
    "entropy_coefficient": 0.0,
    "clip_value": False,
    "normalise_obs": True,
    "normalise_reward": True,
}
VPG_CARTPOLE = {
    "num_envs": 16,
    "num_steps": 128,
    "num_value_steps": 20,
    "num_iterations": 100,
    "actor_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
}
TD3_PENDULUM = {
    "hidden_sizes": [64, 64],
    "num_iterations": 500,
    "start_steps": 1000,
    "update_after": 1000,
    "replay_capacity": 20_000,
}
TASKS = {
    "ppo-cartpole": Task("ppo", "gymnax/CartPole-v1", "return", 475, 5),
    "ppo-breakout": Task("ppo", "gymnax/Breakout-MinAtar", "return", 5, 2, {"num_iterations": 50}),
    "ppo-pendulum": Task("ppo", "gymnax/Pendulum-v1", "greedy", -200, 3, PPO_PENDULUM),
    "vpg-cartpole": Task("vpg", "gymnax/CartPole-v1", "return", 475, 3, VPG_CARTPOLE),
    "dqn-cartpole": Task("dqn", "gymnax/CartPole-v1", "greedy", 475, 3, {"unit": "chunk", "chunk": 500}),
    "td3-pendulum": Task("td3", "gymnax/Pendulum-v1", "greedy", -200, 3, TD3_PENDULUM),
}


INTRODUCTION = """\
One thread, each backend in its best mode, with the default hyper-parameters but for those named. *Return* is the mean
over the episodes that ended at the end of training (the last iteration, or the last fiftieth of those in which one
ended), with actions as they are drawn in training; *greedy* the mean over 32 fresh episodes after it; *seconds* the
duration of a training, the first of which compiles. All as mean and standard deviation over seeds."""


def run_of(task: Task, backend: str) -> Run:
    """The run of a task in a backend: whole trainings of the JAX family in a few programs."""
    fields = {"algorithm": task.algorithm, "env": task.env, "backend": backend} | dict(task.fields)
    if registry.BACKENDS[backend].family == "torch":
        fields |= {"unit": "phase"}
    return Run.from_dict(fields)


def learn(task: Task, backend_name: str) -> list[dict[str, Any]]:
    """For each seed: steps to the threshold (None if never), best and last mean return, greedy return."""
    run = run_of(task, backend_name)
    agent, backend = build(run)
    rows = []
    for seed in range(task.seeds):
        state, returns, started = start(agent, seed), [], time.perf_counter()
        for _ in range(run.config.num_iterations // run.length):
            state, metrics = advance(agent, state)
            found = backend.fetch(metrics)["episode_return"]
            returns += found.reshape(-1).tolist()
        duration_s = time.perf_counter() - started
        known = [(i, r) for i, r in enumerate(returns, 1) if r == r]
        reached = next((i for i, r in known if r >= task.threshold), None)
        greedy = evaluate(run, agent.export(state), episodes=32, seed=seed + 1000)
        rows.append(
            {
                "backend": backend_name,
                "seed": seed,
                "steps_to_threshold": reached and reached * run.config.batch_size,
                "best": max(r for _, r in known),
                "last": statistics.mean(r for _, r in known[-max(1, len(known) // 50) :]),
                "greedy": float(greedy.mean()),
                "duration_s": duration_s,
            }
        )
    return rows


def summarise(task: Task, rows: list[dict[str, Any]]) -> str:
    """One line of the table."""
    solved = len(rows) - unlearnt(task, rows)
    reached = [row["steps_to_threshold"] for row in rows if row["steps_to_threshold"]]
    spread = [
        f"{statistics.mean(x):.1f} +- {statistics.pstdev(x):.1f}"
        for x in ([row[name] for row in rows] for name in ("last", "greedy", "duration_s"))
    ]
    median = f"{statistics.median(reached):,.0f}" if reached else "-"
    return f"| {rows[0]['backend']} | {solved} of {len(rows)} | {median} | {' | '.join(spread)} |"


def write(results: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> None:
    """The part of the document about backends, with every task that has been run in all of them."""
    machine = f"{platform.processor() or platform.machine()}, {platform.python_implementation()}"
    lines = [f"Made by `make learn` on {machine} {platform.python_version()}.\n{INTRODUCTION}", ""]
    for name, groups in results.items():
        task = TASKS[name]
        config = run_of(task, "linen").config
        steps = config.num_iterations * config.batch_size
        aim = f"{task.by} {task.threshold:g} within {steps:,} steps, {task.seeds} seeds"
        lines += [
            f"### {task.algorithm} on {task.env}: {aim}",
            "",
            *([f"With {', '.join(f'{k}={v}' for k, v in task.fields.items())}.", ""] if task.fields else []),
            "| backend | seeds that learnt it | steps to the first such return (median) | return | greedy | seconds |",
            "|---|---|---|---|---|---|",
            *(summarise(task, rows) for rows in groups.values()),
            "",
        ]
    write_between(DOCUMENT, "backends", lines)


def kept() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What earlier runs have found, by task and backend."""
    if not KEPT.exists():
        return {}
    entries = [json.loads(line) for line in KEPT.read_text().splitlines()]
    return {(entry["task"], entry["backend"]): entry["rows"] for entry in entries}


def in_a_process(task: str, backend: str) -> list[dict[str, Any]]:
    """The rows of a task in a backend, from a process of its own; kept at once."""
    command = [sys.executable, __file__, "--backend", backend, "--task", task]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = json.loads(output.splitlines()[-1])
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a") as file:
        file.write(json.dumps({"task": task, "backend": backend, "rows": rows}) + "\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=registry.BACKENDS)
    parser.add_argument("--task", choices=TASKS, nargs="+", default=list(TASKS))
    arguments = parser.parse_args()
    limit_threads(1)
    if arguments.backend:
        print(json.dumps(learn(TASKS[arguments.task[0]], arguments.backend)))
        return
    known = kept()
    for task, backend in track([(t, b) for t in arguments.task for b in registry.BACKENDS], description="learning"):
        if (task, backend) not in known:
            known[task, backend] = in_a_process(task, backend)
            print(task, summarise(TASKS[task], known[task, backend]), flush=True)
    groups = {t: {b: known[t, b] for b in registry.BACKENDS if (t, b) in known} for t in TASKS}
    write({task: found for task, found in groups.items() if len(found) == len(registry.BACKENDS)})
    failed = [f"{b} in {t}" for (t, b), rows in known.items() if unlearnt(TASKS[t], rows) > 1]
    if failed:
        sys.exit(f"more than one seed did not learn it: {', '.join(failed)}")


def unlearnt(task: Task, rows: list[dict[str, Any]]) -> int:
    """Seeds that never got there."""
    if task.by == "greedy":
        return sum(row["greedy"] < task.threshold for row in rows)
    return sum(row["steps_to_threshold"] is None for row in rows)


if __name__ == "__main__":
    main()
