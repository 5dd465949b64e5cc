"""Does a convolutional network learn more than an MLP? Ten seeds of each on MinAtar, with intervals.

`python benchmarks/minatar.py` trains PPO in plain JAX, ten seeds as the members of one program, and prints the table of
docs/networks.md: the return of training episodes, mean over the last ten iterations. Seeds mean nothing across
networks, so differences have Welch's interval. What is done is kept in runs/minatar.jsonl, so a run that was broken off
goes on where it stopped; remove the file to start anew.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchback import registry
from benchback.cli.arguments import limit_threads
from benchback.population import members
from benchback.training import advance
from benchback.training.run import Run, environment

KEPT = Path(__file__).parent.parent / "runs" / "minatar.jsonl"
ENVS = ("SpaceInvaders", "Breakout")
NETWORKS = ("cnn", "mlp")
SEEDS = 10
LAST = 10
"""Iterations at the end whose episodes count."""
FIELDS = {"num_envs": 16, "num_steps": 64, "num_iterations": 100, "num_epochs": 2, "num_minibatches": 4}


def trained(env: str, network: str) -> dict[str, Any]:
    """Returns at the end of training, one for each seed, and in how many seconds of this process."""
    began = time.process_time()
    fields = FIELDS | {"learning_rate": 1e-3, "network": network, "gradients": "reordered"}
    run = Run.from_dict({"algorithm": "ppo", "backend": "purejax", "env": f"gymnax/{env}-MinAtar"} | fields)
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    agent = make(run.config, environment(run, run.config.num_envs))
    many = members.execute(agent, backend, run.compile_mode, "phase", 1, size=SEEDS, group=1)
    state, returns = many.init(many.key(0), agent.hyper), []
    for _ in range(run.config.num_iterations):
        state, metrics = advance(many, state)
        returns.append(np.ravel(backend.fetch(metrics)["episode_return"]))
    steps = run.config.batch_size * run.config.num_iterations
    found = {"env": env, "network": network, "env_steps": steps, "cpu_s": time.process_time() - began}
    return found | {"returns": np.nanmean(returns[-LAST:], 0).tolist()}


def interval(values: list[float]) -> str:
    """Mean and 95 % interval by Student's t."""
    mean, error = np.mean(values), stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, mean, error)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def lines(found: dict[str, list[float]], env: str) -> list[str]:
    """The lines of an environment: both networks, and their difference."""
    rows = [
        f"| {env}-MinAtar | `{network}` | {interval(x)} | {min(x):.1f} to {max(x):.1f} |"
        for network, x in found.items()
    ]
    test = stats.ttest_ind(found["cnn"], found["mlp"], equal_var=False)
    low, high = test.confidence_interval()
    difference = np.mean(found["cnn"]) - np.mean(found["mlp"])
    return [*rows, f"| {env}-MinAtar | difference | {difference:.1f} [{low:.1f}, {high:.1f}] | |"]


def kept() -> list[dict[str, Any]]:
    """What was trained before."""
    return [json.loads(text) for text in KEPT.read_text().splitlines()] if KEPT.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", nargs="*", default=list(ENVS), choices=ENVS)
    envs = parser.parse_args().envs
    limit_threads(1)
    KEPT.parent.mkdir(exist_ok=True)
    for env in envs:
        for network in NETWORKS:
            if (env, network) in {(row["env"], row["network"]) for row in kept()}:
                continue
            with KEPT.open("a") as file:
                file.write(json.dumps(trained(env, network)) + "\n")
        known = {row["network"]: row["returns"] for row in kept() if row["env"] == env}
        print("\n".join(lines(known, env)), flush=True)


if __name__ == "__main__":
    main()
