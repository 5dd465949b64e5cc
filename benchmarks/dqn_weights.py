"""How much DQN's initial weights matter on CartPole: ten seeds of each as one population of plain JAX.

    python benchmarks/dqn_weights.py [--weights 1.4142 3 5 lecun] [--anneal] [--replay-capacity 50000]

A number is the scale of orthogonal hidden weights; LeCun normal ones are the default of `benchback train`. Prints, from
the returns of training episodes (epsilon is 0.05 in the second half), the mean over the training, that of the last
50,000 steps with its worst seed, the steps after which the median seed first had a mean of 440 or more over 10,000
steps, and the worst such mean after that. About a minute each on a core.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchback.algorithms.dqn import purejax
from benchback.cli.arguments import limit_threads
from benchback.population.spec import Population
from benchback.population.training import train_population
from benchback.training.run import Run

SEEDS, BUCKET_STEPS, LEARNT = 10, 10_000, 440
LAST = 5
"""Buckets at the end of training."""
default = purejax.init_mlp


def initial(weights: str) -> Callable[..., Any]:
    """What replaces `init_mlp`."""
    if weights == "lecun":
        return default
    return lambda key, sizes, head_scale, dtype, lecun: default(key, sizes, head_scale, dtype, float(weights))


def returns(fields: dict[str, Any]) -> np.ndarray:
    """Mean return of the episodes that ended in each bucket, by seed and bucket."""
    run = Run.from_dict({"algorithm": "dqn", "backend": "purejax", "unit": "chunk", "chunk": 500} | fields)
    size = BUCKET_STEPS // run.config.batch_size
    with tempfile.TemporaryDirectory() as folder:
        train_population(run, Population({}, seeds=SEEDS), out=Path(folder) / "run")
        curves = pl.read_parquet(Path(folder) / "run" / "curves" / "part-*.parquet")
    number = pl.col("episode_return_count") if "episode_return_count" in curves.columns else pl.lit(1)
    ended = curves.filter(pl.col("episode_return").is_finite())
    means = ended.group_by("member", ((pl.col("iteration") - 1) // size).alias("bucket")).agg(
        (pl.col("episode_return") * number).sum() / number.sum()
    )
    table = np.full((SEEDS, run.config.num_iterations // size), np.nan)
    for seed, bucket, value in means.iter_rows():
        table[seed, bucket] = value
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", nargs="+", default=[str(2**0.5), "3", "5", "lecun"])
    parser.add_argument("--anneal", action="store_true")
    parser.add_argument("--replay-capacity", type=int, default=10_000)
    parser.add_argument("--num-iterations", type=int, default=50_000)
    flags = parser.parse_args()
    limit_threads(1)
    fields = {name: getattr(flags, name) for name in ("anneal", "replay_capacity", "num_iterations")}
    print("| weights | mean | at the end | its worst seed | learnt | after (median) | worst mean later |")
    print("|---|---|---|---|---|---|---|")
    for weights in flags.weights:
        purejax.init_mlp = initial(weights)
        table = returns(fields)
        learnt = [(seed, int(np.argmax(row >= LEARNT))) for seed, row in enumerate(table) if (row >= LEARNT).any()]
        after = np.median([(at + 1) * BUCKET_STEPS for _, at in learnt]) if learnt else np.nan
        later = min((np.nanmin(table[seed, at:]) for seed, at in learnt), default=np.nan)
        ends = np.nanmean(table[:, -LAST:], axis=1)
        print(
            f"| {weights} | {np.nanmean(table):.0f} | {ends.mean():.0f} | {ends.min():.0f} | {len(learnt)} of {SEEDS} "
            f"| {after:,.0f} | {later:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
