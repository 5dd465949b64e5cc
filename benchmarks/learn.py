"""Does every backend learn? CartPole to 475 over five seeds, Breakout-MinAtar above 5; writes docs/learning.md.

Each backend runs in a process of its own: `python benchmarks/learn.py --backend linen` prints its rows as
JSON, without an argument all backends are run and the table is written.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.progress import track

from benchback import registry
from benchback.algorithms.ppo.config import Config
from benchback.cli.arguments import limit_threads
from benchback.train import Run, advance, build, evaluate

TASKS = {
    "CartPole-v1": (475.0, 5, Config()),
    "Breakout-MinAtar": (5.0, 2, Config(num_iterations=50)),
}
"""Environment -> the return to reach, with how many seeds, and how."""
DOCUMENT = Path(__file__).parent.parent / "docs" / "learning.md"


def learn(backend_name: str, env: str) -> list[dict]:
    """For each seed: steps to the threshold (None if never), best and last mean return, greedy return."""
    threshold, num_seeds, config = TASKS[env]
    run = Run(config, env=f"gymnax/{env}", backend=backend_name)
    agent, backend = build(run)
    rows = []
    for seed in range(num_seeds):
        state, returns, started = agent.init(seed, None), [], time.perf_counter()
        for _ in range(config.num_iterations):
            state, metrics = advance(agent, state)
            returns.append(float(backend.fetch(metrics)["episode_return"]))
        duration_s = time.perf_counter() - started
        reached = next((i for i, r in enumerate(returns, 1) if r >= threshold), None)
        greedy = evaluate(run, agent.export(state), episodes=32, seed=seed + 1000)
        rows.append(
            {
                "backend": backend_name,
                "env": env,
                "seed": seed,
                "steps_to_threshold": reached and reached * config.batch_size,
                "best": max(returns),
                "last": returns[-1],
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
        f"{platform.python_version()}, one thread, each backend in its best mode with the "
        "default hyper-parameters. *Return* is the mean over the episodes that ended in the last iteration "
        "(actions sampled), *greedy* the mean over 32 fresh episodes; both as mean and standard deviation over seeds.",
        "",
    ]
    for env, groups in results.items():
        threshold, num_seeds, config = TASKS[env]
        steps = config.num_iterations * config.batch_size
        lines += [
            f"## {env}: {threshold:.0f} within {steps:,} steps, {num_seeds} seeds",
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
    parser.add_argument("--env", choices=TASKS, default="CartPole-v1")
    arguments = parser.parse_args()
    limit_threads(1)
    if arguments.backend:
        print(json.dumps(learn(arguments.backend, arguments.env)))
        return
    results: dict[str, list[list[dict]]] = {env: [] for env in TASKS}
    for env, backend in track([(e, b) for e in TASKS for b in registry.BACKENDS], description="learning"):
        command = [sys.executable, __file__, "--backend", backend, "--env", env]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results[env].append(json.loads(output.splitlines()[-1]))
        print(summarise(results[env][-1]), flush=True)
    write(results)
    failed = [
        f"{rows[0]['backend']} on {env}"
        for env, groups in results.items()
        for rows in groups
        if sum(row["steps_to_threshold"] is not None for row in rows) < len(rows) - 1
    ]
    if failed:
        sys.exit(f"more than one seed did not reach the threshold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
