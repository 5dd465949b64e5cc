"""Does speed cost learning? Final returns over ten seeds: benchback's one program against PureJaxRL's way.

    python benchmarks/returns.py [--workload A] [--truncation bootstrap]    # two minutes on one core; C takes seven

Both sides train on the workload of `benchback peers` for 491,520 environment steps, compile once and run every seed. A
run's return is the mean over the episodes that ended in the last sixth of its iterations. PureJaxRL takes time limits
for ends; with `--truncation terminal` benchback does, too.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchback.measure.peers.sides import PROGRAMS
from benchback.measure.peers.work import WORKLOADS, Workload

SEEDS = 10
STEPS = 491_520
TAIL_SHARE = 1 / 6

OWN = """
import sys, json, numpy as np
from types import SimpleNamespace
from own import run_of
from benchback.agent import start
from benchback.training.run import build
work, seeds, tail = SimpleNamespace(**json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
agent, backend = build(run_of(work, {"backend": "purejax", "mode": "jit", "unit": "chunk", "suite": "gymnax"}))
for seed in range(seeds):
    _, metrics = agent.iterate(start(agent, seed))
    found = backend.fetch({name: metrics[name] for name in ("episode_return", "episodes")})
    kept = found["episodes"][-tail:] > 0
    print(float(np.average(found["episode_return"][-tail:][kept], weights=found["episodes"][-tail:][kept])), flush=True)
"""
STYLE = """
import sys, json, jax, numpy as np
from types import SimpleNamespace
from purejax_style import make_train
work, seeds, tail = SimpleNamespace(**json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
program = jax.jit(make_train(work))
for seed in range(seeds):
    _, info = program(jax.random.PRNGKey(seed))
    ended = np.asarray(info["returned_episode"][-tail:])
    print(float(np.asarray(info["returned_episode_returns"][-tail:])[ended].mean()), flush=True)
"""


def returns(code: str, work: Workload, seeds: int) -> np.ndarray:
    """The final return of every seed, from one process."""
    iterations = STEPS // work.config.batch_size
    flat = work.with_iterations(iterations).to_dict() | {"seed": 0}
    command = [sys.executable, "-c", code, json.dumps(flat), str(seeds), str(round(TAIL_SHARE * iterations))]
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(PROGRAMS))
    return np.array([float(line) for line in process.stdout.split()])


def main() -> None:
    """Print both distributions and the interval of their difference (Welch)."""
    from scipy import stats

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workload", choices=[x.name for x in WORKLOADS.values() if x.algorithm == "ppo"], default="A")
    parser.add_argument("--truncation", choices=("bootstrap", "terminal"), default="bootstrap")
    flags = parser.parse_args()
    work = WORKLOADS[flags.workload]
    work = replace(work, config=replace(work.config, truncation=flags.truncation))
    own, style = (returns(code, work, flags.seeds) for code in (OWN, STYLE))
    for name, values in (("benchback purejax", own), ("PureJaxRL's way", style)):
        print(f"{name}: {values.mean():.2f} +- {values.std(ddof=1):.2f} over {len(values)} seeds: {values.round(1)}")
    test: Any = stats.ttest_ind(own, style, equal_var=False)
    low, high = test.confidence_interval(0.95)
    rank = stats.mannwhitneyu(own, style).pvalue
    print(f"difference {own.mean() - style.mean():+.2f} [{low:+.2f}, {high:+.2f}]")
    print(f"p of no difference: {test.pvalue:.2f} (Welch), {rank:.2f} (ranks)")


if __name__ == "__main__":
    main()
