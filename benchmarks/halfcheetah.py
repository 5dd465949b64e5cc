"""How far a HalfCheetah gets on a small budget: TD3 and PPO; writes docs/learning/halfcheetah.csv and .png.

`python benchmarks/halfcheetah.py`: each algorithm and seed in turn; the greedy return is that of ten fresh episodes,
twenty times along a training, outside of the clock. What is in the csv is not run again: remove it to start anew.
`benchmarks/learn.py` puts what was found into docs/learning.md.
"""

import argparse
import csv
import statistics
import time
from pathlib import Path
from typing import Any

from rich.progress import Progress

from benchback.cli.arguments import limit_threads
from benchback.training import train
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

FOLDER = Path(__file__).parent.parent / "docs" / "learning"
TABLE, CURVE = FOLDER / "halfcheetah.csv", FOLDER / "halfcheetah.png"
ENV, BACKEND = "gymnasium/HalfCheetah-v5", "purejax"
POINTS = 20
FIELDS: dict[str, dict[str, Any]] = {
    "td3": {},
    "ppo": {
        "num_envs": 8,
        "num_steps": 256,
        "num_minibatches": 32,
        "learning_rate": 3e-4,
        "entropy_coefficient": 0.0,
        "normalise_obs": True,
        "normalise_reward": True,
    },
}
"""Algorithm -> where it differs from its defaults: for PPO what is usual with MuJoCo."""
STEPS = {"td3": 200_000, "ppo": 1_000_000}


def learn(fields: dict[str, Any], steps: int, progress: Progress) -> list[dict[str, Any]]:
    """The greedy return along one training."""
    per_iteration = Run.from_dict(fields).config.batch_size
    run = Run.from_dict(fields | {"num_iterations": steps // per_iteration})
    apart = max(1, run.config.num_iterations // POINTS)
    task = progress.add_task(f"{run.algorithm} seed {run.seed}", total=run.config.num_iterations)
    rows, started, aside_s = [], time.perf_counter(), 0.0
    for at in train(run):
        progress.update(task, completed=at.iteration)
        if at.iteration % apart == 0:
            spent_s, paused = time.perf_counter() - started - aside_s, time.perf_counter()
            returns = evaluate(run, at.export(), episodes=10, seed=1000 + run.seed, max_steps=1000)
            row = {"algorithm": run.algorithm, "seed": run.seed, "env_steps": at.iteration * per_iteration}
            rows.append(row | {"seconds": round(spent_s, 1), "greedy_return": round(float(returns.mean()), 1)})
            progress.console.print(rows[-1])
            aside_s += time.perf_counter() - paused
    return rows


def draw(rows: list[dict[str, Any]]) -> None:
    """Mean and range over seeds against steps."""
    import altair as alt

    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("env_steps:Q", title="environment steps"), color=alt.Color("algorithm:N", title=None)
    )
    band = base.mark_area(opacity=0.2).encode(
        y=alt.Y("min(greedy_return):Q", title="greedy return"), y2="max(greedy_return):Q"
    )
    line = base.mark_line(point=True).encode(y="mean(greedy_return):Q")
    title = f"{ENV}, {BACKEND}"
    (band + line).properties(width=520, height=300, title=title).save(str(CURVE), scale_factor=2)


def kept() -> list[dict[str, Any]]:
    """What an earlier run has found."""
    if not TABLE.exists():
        return []
    types = {"algorithm": str, "seed": int, "env_steps": int, "seconds": float, "greedy_return": float}
    with TABLE.open(newline="") as file:
        return [{name: types[name](x) for name, x in row.items()} for row in csv.DictReader(file)]


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A table: how far each algorithm got, and in what time."""
    lines = ["| algorithm | steps | greedy return | by seed | minutes of training |", "|---|---|---|---|---|"]
    for algorithm in FIELDS:
        theirs = [row for row in rows if row["algorithm"] == algorithm]
        end = max((row["env_steps"] for row in theirs), default=0)
        if last := [row for row in theirs if row["env_steps"] == end]:
            returns = [row["greedy_return"] for row in last]
            spread = f"{statistics.mean(returns):.0f} +- {statistics.pstdev(returns):.0f}"
            each = ", ".join(f"{x:.0f}" for x in returns)
            minutes = statistics.mean(row["seconds"] for row in last) / 60
            lines.append(f"| {algorithm} | {end:,} | {spread} | {each} | {minutes:.1f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithms", choices=FIELDS, nargs="+", default=list(FIELDS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    limit_threads(1)
    FOLDER.mkdir(exist_ok=True)
    rows = kept()
    done = {(row["algorithm"], row["seed"]) for row in rows}
    with Progress() as progress:
        for algorithm, seed in ((a, s) for s in range(arguments.seeds) for a in arguments.algorithms):
            if (algorithm, seed) in done:
                continue
            fields = {"algorithm": algorithm, "env": ENV, "backend": BACKEND, "seed": seed}
            rows += learn(fields | FIELDS[algorithm], STEPS[algorithm], progress)
            with TABLE.open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            draw(rows)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
