"""Does every backend learn? Each task has a return to reach over several seeds; writes docs/learning.md.

Each backend runs in a process of its own: `python benchmarks/learn.py --backend linen --task ppo/CartPole-v1` prints
its rows as JSON, without an argument all are run and the table is written.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchback import registry
from benchback.algorithms.ppo.config import Config as PPO
from benchback.algorithms.vpg.config import Config as VPG
from benchback.cli.arguments import limit_threads
from benchback.train import Run, advance, build, evaluate


@dataclass(frozen=True)
class Task:
    """What an algorithm must reach, and how."""

    threshold: float
    """Mean return of the episodes that ended in one iteration."""
    num_seeds: int
    config: Any
    """Defaults of its algorithm where nothing else is said."""

    @property
    def given(self) -> str:
        """The settings that are not defaults, as flags of the command line."""
        changed = [(f.name, getattr(self.config, f.name)) for f in fields(self.config)]
        changed = [(name, x) for name, x in changed if x != getattr(type(self.config)(), name)]
        return " ".join(f"--{name.replace('_', '-')} {_written(x)}" for name, x in changed)


def _written(x: Any) -> str:
    return " ".join(map(str, x)) if isinstance(x, tuple) else str(x)


TASKS = {
    "ppo/CartPole-v1": Task(475.0, 5, PPO()),
    "ppo/Breakout-MinAtar": Task(5.0, 2, PPO(num_iterations=50)),
    "vpg/CartPole-v1": Task(
        475.0,
        5,
        VPG(
            num_envs=16,
            num_steps=128,
            num_iterations=100,
            num_value_steps=20,
            actor_learning_rate=1e-2,
            critic_learning_rate=1e-2,
        ),
    ),
}
"""Algorithm and environment -> what is to be reached."""
DOCUMENT = Path(__file__).parent.parent / "docs" / "learning.md"


def learn(backend_name: str, name: str) -> list[dict]:
    """For each seed: steps to the threshold (None if never), best and last mean return, greedy return."""
    task = TASKS[name]
    run = Run(config := task.config, env=f"gymnax/{name.partition('/')[2]}", backend=backend_name)
    agent, backend = build(run)
    rows = []
    for seed in range(task.num_seeds):
        state, returns, started = agent.init(seed, None), [], time.perf_counter()
        for _ in range(config.num_iterations):
            state, metrics = advance(agent, state)
            returns.append(float(backend.fetch(metrics)["episode_return"]))
        duration_s = time.perf_counter() - started
        reached = next((i for i, r in enumerate(returns, 1) if r >= task.threshold), None)
        greedy = evaluate(run, agent.export(state), episodes=32, seed=seed + 1000)
        rows.append(
            {
                "backend": backend_name,
                "task": name,
                "seed": seed,
                "steps_to_threshold": reached and reached * config.batch_size,
                "best": float(np.nanmax(returns)),
                "last": next(r for r in reversed(returns) if not np.isnan(r)),
                "greedy": float(greedy.mean()),
                "duration_s": duration_s,
            }
        )
    return rows


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
        f"{platform.python_version()}, one thread, each backend in its best mode with the default hyper-parameters "
        "where no others are named. *Return* is the mean over the episodes that ended in the last iteration (actions "
        "sampled), *greedy* the mean over 32 fresh episodes; both as mean and standard deviation over seeds.",
        "",
    ]
    for name, groups in results.items():
        task, (algorithm, _, env) = TASKS[name], name.partition("/")
        steps = task.config.num_iterations * task.config.batch_size
        lines += [
            f"## {algorithm.upper()} on {env}: {task.threshold:.0f} within {steps:,} steps, {task.num_seeds} seeds",
            "",
            *([f"With `{task.given}`.", ""] if task.given else []),
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
    results: dict[str, list[list[dict]]] = {name: [] for name in TASKS}
    for name, backend in track([(t, b) for t in TASKS for b in registry.BACKENDS], description="learning"):
        command = [sys.executable, __file__, "--backend", backend, "--task", name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results[name].append(json.loads(output.splitlines()[-1]))
        print(summarise(results[name][-1]), flush=True)
    write(results)
    failed = [
        f"{rows[0]['backend']} in {name}"
        for name, groups in results.items()
        for rows in groups
        if sum(row["steps_to_threshold"] is not None for row in rows) < len(rows) - 1
    ]
    if failed:
        sys.exit(f"more than one seed did not reach the threshold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
