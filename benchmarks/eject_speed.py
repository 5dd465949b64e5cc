"""Whether an ejected file is as fast as the tree: operations of the compiled programs, and iterations in turn.

python benchmarks/eject_speed.py --backend linen --rounds 40
"""

import argparse
import importlib.util
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from benchback.agent import start
from benchback.tools.eject import eject
from benchback.training import advance
from benchback.training.run import Run, build


def load(text: str) -> ModuleType:
    """The ejected file as a module."""
    path = Path(tempfile.mkdtemp()) / "ejected.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("ejected", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["ejected"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operations(function: Any, *arguments: Any) -> Counter[str]:
    """How often each operation occurs in the optimised program."""
    text = function.lower(*arguments).compile().as_text()
    return Counter(re.findall(r"= \S+ ([a-z][\w-]*)\(", text))


def timed(step: Callable[[Any], Any], state: Any) -> tuple[Any, float]:
    """The state after an iteration, and its duration."""
    started = time.perf_counter()
    state, metrics = step(state)
    jax.block_until_ready(metrics)
    return state, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="linen")
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    run = Run.from_dict({"algorithm": "ppo", "backend": given.backend})
    module = load(eject(run, "benchback eject"))
    config, (tree, _) = module.Config(), build(run)
    alone = module.make(config, module.make_gymnax(config.num_envs))
    states = [start(tree, 0), alone.init(jax.random.key(0), config.hyper)]
    if hasattr(alone.rollout, "lower"):
        found = [operations(agent.rollout, state) for agent, state in zip((tree, alone), states, strict=True)]
        print(f"operations of a rollout: {found[0].total()} in the tree, {found[1].total()} ejected")

    def alone_step(state: Any) -> Any:
        state, batch = alone.rollout(state)
        return alone.update(state, batch)

    steps = (lambda state: advance(tree, state)), alone_step
    durations: list[list[float]] = [[], []]
    for number in range(given.rounds + 3):
        for side in (0, 1) if number % 2 else (1, 0):
            states[side], duration_s = timed(steps[side], states[side])
            durations[side].append(duration_s)
    ratios = [b / a for a, b in zip(*durations, strict=True)][3:]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"an iteration, ejected / tree: {middle:.3f} (quartiles {low:.3f}, {high:.3f}) over {len(ratios)} pairs")


if __name__ == "__main__":
    main()
