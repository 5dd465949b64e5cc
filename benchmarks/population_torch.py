"""Many agents of PyTorch: side by side by `torch.vmap`, and one after another, both eager and compiled.

    OMP_NUM_THREADS=1 python benchmarks/population_torch.py [--work ppo-4x128 dqn] [--members 4 16 64] [--groups 16]

CartPole of torch tensors; PPO with 4 or 16 environments x 128 steps, PPO and DQN by their defaults (DQN learns from the
second iteration on). One after another are 4 members, since their time does not depend on how many there are. Every
round runs each way once, in an order drawn anew; ratios are within a round, above 1 where side by side is faster.
Times are those of the processor, on one thread: what else the machine does is not counted.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from benchback import envs, registry
from benchback.agent import Agent
from benchback.backends import pytorch
from benchback.population.stacked import population
from benchback.training import advance

Mode = Callable[[Agent], Agent]
IN_TURN = 4
SMALL = {"num_steps": 128, "num_minibatches": 4, "num_epochs": 4}
WORK: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo-4x128": ("ppo", {"num_envs": 4} | SMALL),
    "ppo-16x128": ("ppo", {"num_envs": 16} | SMALL),
    "ppo": ("ppo", {}),
    "dqn": ("dqn", {}),
}


@dataclass
class Way:
    """A way to train, the states it is at, and the seconds an iteration took for one member."""

    program: Agent
    states: list[Any]
    size: int
    first_s: float = 0.0
    """Seconds of the first iterations of one state, compilation included."""
    seconds: list[float] = field(default_factory=list)

    def call(self, iterations: int) -> float:
        """Train all states so many iterations; returns seconds."""
        started = time.process_time()
        for _ in range(iterations):
            self.states = [advance(self.program, state)[0] for state in self.states]
        return time.process_time() - started


def started(program: Agent, count: int, size: int) -> Way:
    """A way with `count` states of `size` members each, warmed up."""
    way = Way(program, [program.init(program.key(i * size), program.hyper) for i in range(count)], size)
    begin = time.perf_counter()
    way.states[0] = advance(program, advance(program, way.states[0])[0])[0]
    way.first_s = time.perf_counter() - begin
    way.call(1)
    return way


def agent_of(work: str) -> Agent:
    """The agent of a workload, nothing compiled."""
    algorithm, changes = WORK[work]
    config = registry.config(algorithm)(**changes)
    if algorithm == "dqn":
        config = replace(config, learning_starts=config.batch_size)
    make, _ = registry.load(algorithm, "pytorch")
    return make(config, envs.make("torch/CartPole-v1", config.num_envs, "torch"))


def table(work: str, members: list[int], groups: list[int], seconds: float, modes: dict[str, Mode]) -> None:
    """Print the rows of one workload."""
    agent = agent_of(work)
    alone = {name: started(mode(agent), IN_TURN, 1) for name, mode in modes.items()}
    tell(f"{work}, one after another", alone)
    iterations = max(1, round(0.1 / alone["eager"].call(1)))
    for group, sizes in group_sizes(members, groups).items():
        programs = {name: mode(population(agent, group)) for name, mode in modes.items()}
        for size in sizes:
            together = {name: started(program, size // group, group) for name, program in programs.items()}
            if size == sizes[0]:
                tell(f"{work}, {group} side by side", together)
            in_rounds([*alone.values(), *together.values()], iterations, seconds)
            print(f"| {work} | {size} | {group} | {' | '.join(columns(alone, together))} |", flush=True)


def group_sizes(members: list[int], groups: list[int]) -> dict[int, list[int]]:
    """Members side by side -> sizes of populations."""
    pairs = sorted({(min(n, g), n) for n in members for g in groups if n % min(n, g) == 0})
    return {group: [n for g, n in pairs if g == group] for group, _ in pairs}


def in_rounds(ways: list[Way], iterations: int, seconds: float) -> None:
    """Time the ways in turns, for at least three rounds."""
    for way in ways:
        way.seconds.clear()
    order, begin = random.Random(0), time.perf_counter()
    while len(ways[0].seconds) < 3 or time.perf_counter() - begin < seconds:
        for way in order.sample(ways, len(ways)):
            way.seconds.append(way.call(iterations) / iterations / len(way.states) / way.size)


def columns(alone: dict[str, Way], together: dict[str, Way]) -> list[str]:
    """Milliseconds of each way, and how much faster side by side is than one after another in the same mode."""
    found = [f"{1e3 * statistics.median(way.seconds):.2f}" for ways in (alone, together) for way in ways.values()]
    for name, way in alone.items():
        ratios = [a / b for a, b in zip(way.seconds, together[name].seconds, strict=True)]
        found.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return found


def tell(what: str, ways: dict[str, Way]) -> None:
    """Print what the beginning took, on the error stream."""
    each = ", ".join(f"{name} {way.first_s:.1f} s" for name, way in ways.items())
    print(f"{what}: the first two iterations of a program took {each}", file=sys.stderr, flush=True)


def main() -> None:
    """Time, then print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", default=list(WORK), choices=list(WORK))
    parser.add_argument("--members", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--groups", type=int, nargs="+", default=[16])
    parser.add_argument("--seconds", type=float, default=6.0, help="of each row")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    modes = {"eager": pytorch.none} | ({} if flags.eager else {"compiled": pytorch.compile})
    heads = [f"{name}, {way}" for way in ("one after another", "side by side") for name in modes]
    print(f"| work | members | side by side | {' | '.join(heads)} | ratio, {' | ratio, '.join(modes)} |")
    print("|---|---:|---:|" + "---:|" * (3 * len(modes)))
    for work in flags.work:
        table(work, flags.members, flags.groups, flags.seconds, modes)


if __name__ == "__main__":
    main()
