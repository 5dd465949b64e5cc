"""How far a HalfCheetah gets on a small budget: TD3 in plain JAX; writes docs/learning/halfcheetah.csv and .png.

`python benchmarks/halfcheetah.py --steps 200000 --seeds 3`: each seed in turn; the greedy return is that of ten fresh
episodes, twenty times along a training, outside of the clock.
"""

import argparse
import csv
import statistics
import time
from pathlib import Path
from typing import Any

from rich.progress import Progress

from benchback.cli.arguments import limit_threads
from benchback.train import Run, evaluate, train

FOLDER = Path(__file__).parent.parent / "docs" / "learning"
POINTS = 20


def learn(env: str, backend: str, steps: int, seed: int, progress: Progress) -> list[dict[str, Any]]:
    """The greedy return along one training."""
    run = Run.from_dict(
        {"algorithm": "td3", "env": env, "backend": backend, "seed": seed, "num_iterations": steps // 50}
    )
    apart = max(1, run.config.num_iterations // POINTS)
    task = progress.add_task(f"seed {seed}", total=run.config.num_iterations)
    rows, started, aside_s = [], time.perf_counter(), 0.0
    for at in train(run):
        progress.update(task, completed=at.iteration)
        if at.iteration % apart == 0:
            spent_s, paused = time.perf_counter() - started - aside_s, time.perf_counter()
            returns = evaluate(run, at.export(), episodes=10, seed=1000 + seed, max_steps=1000)
            row = {"seed": seed, "env_steps": at.iteration * run.config.batch_size, "seconds": round(spent_s, 1)}
            rows.append(row | {"greedy_return": round(float(returns.mean()), 1)})
            progress.console.print(rows[-1])
            aside_s += time.perf_counter() - paused
    return rows


def draw(rows: list[dict[str, Any]], title: str, out: Path) -> None:
    """Mean and range over seeds against steps."""
    import altair as alt

    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("env_steps:Q", title="environment steps"))
    band = base.mark_area(opacity=0.2).encode(
        y=alt.Y("min(greedy_return):Q", title="greedy return"), y2="max(greedy_return):Q"
    )
    line = base.mark_line(point=True).encode(y="mean(greedy_return):Q")
    (band + line).properties(width=520, height=300, title=title).save(str(out), scale_factor=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="gymnasium/HalfCheetah-v5")
    parser.add_argument("--backend", default="purejax")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    limit_threads(1)
    FOLDER.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    with Progress() as progress:
        for seed in range(arguments.seeds):
            rows += learn(arguments.env, arguments.backend, arguments.steps, seed, progress)
            with (FOLDER / "halfcheetah.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            draw(rows, f"TD3 ({arguments.backend}) on {arguments.env}", FOLDER / "halfcheetah.png")
    last = [row["greedy_return"] for row in rows if row["env_steps"] == rows[-1]["env_steps"]]
    spread = f"{statistics.mean(last):.0f} +- {statistics.pstdev(last):.0f}"
    print(f"greedy return after {rows[-1]['env_steps']:,} steps: {spread}")


if __name__ == "__main__":
    main()
