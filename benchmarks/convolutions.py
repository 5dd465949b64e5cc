"""What a convolutional network costs on a CPU, with the framework's gradients and with reordered ones.

`python benchmarks/convolutions.py` prints the tables of docs/networks.md. The first is of a gradient step in plain JAX,
one tower of MinAtar on 256 images: alone, as one of eight unrolled, and as one of eight in a loop. The second is of PPO
on Breakout-MinAtar with the sizes of the study `networks`: iterations in turns, in one process with one thread.
`--tower nature` gives the first table for Atari's tower, without the framework's gradients in a loop, which did not end
in two minutes. All times are of the processor.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchback.agent import Gradients, start
from benchback.backends.purejax import Layers, cnn, init_cnn
from benchback.cli.arguments import limit_threads
from benchback.plugins.towers import MINATAR, NATURE, Tower
from benchback.training import advance
from benchback.training.run import Run, build

STEPS, IMAGES, RATE = 8, 256, 1e-3
TOWERS = {"minatar": (MINATAR, (10, 10, 4), 128), "nature": (NATURE, (84, 84, 4), 512)}


def step(layers: Layers, images: Any, *, tower: Tower, gradients: Gradients) -> tuple[Layers, None]:
    """One step of gradient descent on the squared outputs."""
    gradient = jax.grad(lambda layers: jnp.mean(cnn(layers, images, tower, gradients) ** 2))(layers)
    return jax.tree.map(lambda x, g: x - RATE * g, layers, gradient), None


def fastest(function: Callable[..., Any], *arguments: Any, times: int = 5) -> float:
    """Least processor time of a call in seconds, compilation not included."""
    found = []
    for _ in range(1 + times):
        began = time.process_time()
        jax.block_until_ready(function(*arguments))
        found.append(time.process_time() - began)
    return min(found[1:])


SIDES = (
    ("purejax", "jit", "framework"),
    ("purejax", "jit", "reordered"),
    ("equinox", "flatten", "framework"),
    ("equinox", "flatten", "reordered"),
    ("pytorch", "env_jit", "framework"),
)
STUDY = {"env": "gymnax/Breakout-MinAtar", "network": "cnn", "num_envs": 32, "num_steps": 32} | {
    "num_epochs": 2,
    "num_minibatches": 4,
    "num_iterations": 100,
}


def iterating(backend: str, mode: str, gradients: str) -> Callable[[], None]:
    """An iteration of PPO."""
    run = Run.from_dict({"algorithm": "ppo", "backend": backend, "mode": mode, "gradients": gradients} | STUDY)
    agent, framework = build(run)
    state = start(agent, 0)

    def iterate() -> None:
        nonlocal state
        state, metrics = advance(agent, state)
        framework.fetch(metrics)

    return iterate


def iterations(rounds: int) -> None:
    """Print what an iteration costs; the first of each side compiles and is not counted."""
    iterate = {side: iterating(*side) for side in SIDES}
    seconds: dict[Any, list[float]] = {side: [] for side in SIDES}
    for turn in range(1 + rounds):
        for side in SIDES if turn % 2 else reversed(SIDES):
            began = time.process_time()
            iterate[side]()
            seconds[side].append(time.process_time() - began)
    for side, (_, *each) in seconds.items():
        print(f"| {', '.join(side)} | {statistics.median(each):.3f} | {min(each):.3f} to {max(each):.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tower", choices=TOWERS, default="minatar")
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    limit_threads(1)
    gradient_steps(flags.tower)
    if flags.tower == "minatar":
        iterations(flags.rounds)


def gradient_steps(chosen: str) -> None:
    """Print what a gradient step costs."""
    tower, shape, width = TOWERS[chosen]
    layers = init_cnn(jax.random.key(0), tower, shape, (width, 4), 1.0, jnp.dtype("float32"))
    images = jax.random.bernoulli(jax.random.key(1), 0.5, (STEPS, IMAGES, *shape))
    orders: tuple[Gradients, ...] = ("framework", "reordered")
    for gradients in orders:
        one = partial(step, tower=tower, gradients=gradients)
        alone = fastest(jax.jit(one), layers, images[0])
        loops = {"unrolled": STEPS, "in a loop": 1}
        if chosen == "nature" and gradients == "framework":
            del loops["in a loop"]
        each = {
            name: fastest(jax.jit(partial(jax.lax.scan, one, unroll=unroll)), layers, images, times=3) / STEPS
            for name, unroll in loops.items()
        }
        told = ", ".join(f"{name} {1000 * x:.1f} ms" for name, x in ({"alone": alone} | each).items())
        print(f"{gradients}: {told}", flush=True)


if __name__ == "__main__":
    main()
