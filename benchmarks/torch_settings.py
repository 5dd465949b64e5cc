"""Steady speed of PyTorch's `compile` mode: inductor's own settings and ours, taking turns in one process.

    python benchmarks/torch_settings.py [--algorithm ppo] [--env torch/CartPole-v1] [--config JSON] [--turn 6]

Both sides train from one seed with the decomposed tanh, so their weights stay equal. Printed: processor time of ours
over that of inductor's settings, for rollouts, updates and both, with 95 % intervals over rounds. Caches are private
and empty.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import stdtrit

from benchback import registry
from benchback.agent import Agent, start
from benchback.measure.machine import variables
from benchback.training.run import Run, environment

CHILD = "BENCHBACK_TORCH_SETTINGS"


class Side:
    """A training with one kind of settings."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.state = agent, start(agent, 0)

    def turn(self, calls: int) -> tuple[float, float]:
        """Processor seconds of rollouts and of updates, per iteration."""
        rollout_s = update_s = 0.0
        for _ in range(calls):
            began = time.process_time()
            self.state, batch = self.agent.rollout(self.state)
            between = time.process_time()
            self.state, _ = self.agent.update(self.state, batch)
            rollout_s, update_s = rollout_s + between - began, update_s + time.process_time() - between
        return rollout_s / calls, update_s / calls


def measure(run: Run, rounds: int, turn: int, warm_up: int) -> None:
    """Build both sides, let them take turns, print the ratios."""
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    from benchback.backends import pytorch

    def plain(agent: Agent) -> Agent:
        inductors = {"cpp.use_decompose_tanh": True}
        names = {"rollout_steps", "finish_rollout", "minibatch_step"}
        return pytorch._with_wrapped(agent, pytorch._compiling(names, pytorch.keep, options=inductors))

    modes: dict[str, Callable[[Agent], Agent]] = {"inductor's": plain, "ours": backend.modes["compile"]}
    sides = {name: Side(mode(make(run.config, environment(run, run.config.num_envs)))) for name, mode in modes.items()}
    for side in sides.values():
        side.turn(warm_up)
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for index in range(rounds):
        for name in sorted(sides, reverse=index % 2 == 1):
            sides[name].turn(1)
            rows[name].append(sides[name].turn(turn))
    for part, of in {"rollout": lambda x: x[0], "update": lambda x: x[1], "iteration": sum}.items():
        before, now = (np.array([of(row) for row in rows[name]]) for name in modes)
        show(part, np.log(now / before), np.median(before), np.median(now))
    weights = [side.agent.export(side.state) for side in sides.values()]
    print(
        "largest difference of weights:",
        max(np.abs(x - weights[1][k]).max() for k, x in weights[0].items() if "kernel" in k),
    )


def show(part: str, logs: Any, before_s: float, now_s: float) -> None:
    """Print a ratio with its interval and both times."""
    half = float(stdtrit(len(logs) - 1, 0.975)) * logs.std(ddof=1) / math.sqrt(len(logs))
    low, mean, high = (math.exp(logs.mean() + x) for x in (-half, 0.0, half))
    print(f"{part}: {mean:.3f} [{low:.3f}, {high:.3f}], {1e3 * before_s:.2f} -> {1e3 * now_s:.2f} ms")


def main() -> None:
    """Parse, and measure in a process with empty caches and one thread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="ppo")
    parser.add_argument("--env", default="torch/CartPole-v1")
    parser.add_argument("--config", type=json.loads, default={}, help="further fields of the run, as JSON")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--turn", type=int, default=6, help="iterations of a turn")
    parser.add_argument("--warm-up", type=int, default=8, help="iterations before, in which programs are compiled")
    given = parser.parse_args()
    if CHILD not in os.environ:
        with tempfile.TemporaryDirectory() as caches:
            own = variables(1, caches) | {CHILD: "1"}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=own, check=False).returncode)
    fields = {"algorithm": given.algorithm, "env": given.env, "backend": "pytorch", "mode": "compile"} | given.config
    measure(Run.from_dict(fields), given.rounds, given.turn, given.warm_up)


if __name__ == "__main__":
    main()
