"""Does every backend learn? Each algorithm to its target return over several seeds; writes docs/learning.md.

Each backend runs in a process of its own: `python benchmarks/learn.py --backend linen --task dqn/CartPole-v1` prints
its rows as JSON, without an argument all backends are run on all tasks and the tables are written.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchback import registry
from benchback.algorithms.dqn.config import Config as DQN
from benchback.algorithms.ppo.config import Config as PPO
from benchback.cli.arguments import limit_threads
from benchback.train import Run, advance, build, evaluate

BLOCK_STEPS = 8192
"""Environment steps over which returns are averaged; iterations may be shorter than an episode."""


@dataclass(frozen=True)
class Task:
    """What is to be learnt, and how."""

    env: str
    threshold: float
    """The return to reach."""
    num_seeds: int
    config: Any
    chunk: int = 1
    """Iterations per program, where a backend has programs of several."""


TASKS = {
    "ppo/CartPole-v1": Task("CartPole-v1", 475.0, 5, PPO()),
    "ppo/Breakout-MinAtar": Task("Breakout-MinAtar", 5.0, 2, PPO(num_iterations=50)),
    "dqn/CartPole-v1": Task("CartPole-v1", 475.0, 5, DQN(), chunk=500),
}
DOCUMENT = Path(__file__).parent.parent / "docs" / "learning.md"


def learn(backend_name: str, task_name: str) -> list[dict]:
    """For each seed: steps to the threshold (None if never), best and last mean return, greedy return."""
    task = TASKS[task_name]
    config, fused = task.config, task.chunk > 1 and "chunk" in registry.BACKENDS[backend_name].units
    unit = {"unit": "chunk", "chunk": task.chunk} if fused else {}
    run = Run(config, env=f"gymnax/{task.env}", backend=backend_name, **unit)
    agent, backend = build(run)
    rows = []
    for seed in range(task.num_seeds):
        state, history, started = agent.init(seed, None), [], time.perf_counter()
        for _ in range(config.num_iterations // run.length):
            state, metrics = advance(agent, state)
            history.append(backend.fetch({name: metrics[name] for name in ("episode_return", "episodes")}))
        duration_s = time.perf_counter() - started
        steps, returns = averaged(history, config.batch_size)
        reached = next((step for step, r in zip(steps, returns, strict=True) if r >= task.threshold), None)
        greedy = evaluate(run, agent.export(state), episodes=32, seed=seed + 1000)
        rows.append(
            {
                "backend": backend_name,
                "task": task_name,
                "seed": seed,
                "steps_to_threshold": reached,
                "best": max(returns),
                "last": returns[-1],
                "greedy": float(greedy.mean()),
                "duration_s": duration_s,
            }
        )
    return rows


def averaged(history: list[dict[str, np.ndarray]], batch_size: int) -> tuple[list[int], list[float]]:
    """Steps done and mean return of the episodes that ended, for each block of iterations in which one did."""
    columns = (np.concatenate([np.atleast_1d(x[name]) for x in history]) for name in ("episode_return", "episodes"))
    mean, number = columns
    block = max(1, BLOCK_STEPS // batch_size)
    steps, returns = [], []
    for start in range(0, len(mean), block):
        part = slice(start, start + block)
        if number[part].sum():
            steps.append(min(start + block, len(mean)) * batch_size)
            returns.append(float(np.nansum(mean[part] * number[part]) / number[part].sum()))
    return steps, returns


def summarise(rows: list[dict]) -> str:
    """One line of the table."""
    reached = [row["steps_to_threshold"] for row in rows if row["steps_to_threshold"]]
    spread = [f"{statistics.mean(x):.1f} +- {statistics.pstdev(x):.1f}" for x in columns(rows, "last", "greedy")]
    median = f"{statistics.median(reached):,.0f}" if reached else "-"
    return f"| {rows[0]['backend']} | {len(reached)} of {len(rows)} | {median} | {spread[0]} | {spread[1]} |"


def columns(rows: list[dict], *names: str) -> list[list[float]]:
    return [[row[name] for row in rows] for name in names]


def write(results: dict[str, list[list[dict]]]) -> None:
    lines = [
        "# Does every backend learn?",
        "",
        f"Made by `make learn` on {platform.processor() or platform.machine()}, {platform.python_implementation()} "
        f"{platform.python_version()}, one thread, each backend in its best mode with the "
        "default hyper-parameters. *Return* is the mean over the episodes that ended in the last 8192 steps "
        "(actions sampled or explored), *greedy* the mean over 32 fresh episodes; both as mean and standard deviation "
        "over seeds.",
        "",
    ]
    for name, groups in results.items():
        task = TASKS[name]
        steps = task.config.num_iterations * task.config.batch_size
        title = f"{task.config.algorithm.upper()} on {task.env}"
        lines += [
            f"## {title}: {task.threshold:.0f} within {steps:,} steps, {task.num_seeds} seeds",
            "",
            "| backend | seeds that reached it | steps needed (median) | return at the end | greedy |",
            "|---|---|---|---|---|",
            *map(summarise, groups),
            "",
        ]
    DOCUMENT.write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=registry.BACKENDS)
    parser.add_argument("--task", choices=TASKS, default="ppo/CartPole-v1")
    arguments = parser.parse_args()
    limit_threads(1)
    if arguments.backend:
        print(json.dumps(learn(arguments.backend, arguments.task)))
        return
    results: dict[str, list[list[dict]]] = {task: [] for task in TASKS}
    for task, backend in track([(t, b) for t in TASKS for b in registry.BACKENDS], description="learning"):
        command = [sys.executable, __file__, "--backend", backend, "--task", task]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results[task].append(json.loads(output.splitlines()[-1]))
        print(summarise(results[task][-1]), flush=True)
    write(results)
    failed = [
        f"{rows[0]['backend']} on {task}"
        for task, groups in results.items()
        for rows in groups
        if sum(row["steps_to_threshold"] is not None for row in rows) < len(rows) - 1
    ]
    if failed:
        sys.exit(f"more than one seed did not reach the threshold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
