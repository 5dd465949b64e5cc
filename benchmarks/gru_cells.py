"""What a framework's own GRU cell costs or gains against the one that recurrent PPO writes from its layers.

`python benchmarks/gru_cells.py` times the gradient of a sequence through both, in turns that alternate, and prints the
table of docs/recurrent.md: the median of ratios, own cell over ours.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import nnx

from benchback.algorithms.ppo.recurrent.haiku import GRU as HaikuGRU
from benchback.algorithms.ppo.recurrent.nnx import GRU as NNXGRU
from benchback.algorithms.ppo.recurrent.pytorch import GRU as TorchGRU
from benchback.cli.arguments import limit_threads

STEPS, ENVS, WIDTH = 128, 4, 128
Pass = Callable[[], Any]
"""Computes the gradient once and waits for it."""


def in_torch(own: bool) -> Pass:
    """A loop in Python, as in mode none."""
    generator = torch.Generator().manual_seed(0)
    cell: Any = torch.nn.GRUCell(WIDTH, WIDTH) if own else TorchGRU(WIDTH, torch.float32, generator)
    x, params = torch.randn(STEPS, ENVS, WIDTH, generator=generator), list(cell.parameters())

    def gradient() -> Any:
        memory, outputs = torch.zeros(ENVS, WIDTH), []
        for each in x.unbind():
            memory = cell(each, memory)
            outputs.append(memory)
        return torch.autograd.grad(torch.stack(outputs).square().sum(), params)

    return gradient


def in_nnx(own: bool) -> Pass:
    """A scan in a compiled program."""
    rngs = nnx.Rngs(0)
    cell: Any = nnx.GRUCell(WIDTH, WIDTH, rngs=rngs) if own else NNXGRU(WIDTH, jnp.float32, rngs)
    graphdef, params = nnx.split(cell)

    def step(params: Any, memory: Any, x: Any) -> Any:
        module = nnx.merge(graphdef, params)
        return module(memory, x)[0] if own else module(x, memory)

    return compiled(step, params)


def in_haiku(own: bool) -> Pass:
    """A scan in a compiled program."""

    def forward(memory: Any, x: Any) -> Any:
        return hk.GRU(WIDTH)(x, memory)[0] if own else HaikuGRU(WIDTH)(x, memory)

    cell = hk.without_apply_rng(hk.transform(forward))
    params = cell.init(jax.random.key(0), *jnp.zeros((2, ENVS, WIDTH)))
    return compiled(cell.apply, params)


def compiled(step: Callable[[Any, Any, Any], Any], params: Any) -> Pass:
    """The gradient of a scan of the step."""
    x = jax.random.normal(jax.random.key(1), (STEPS, ENVS, WIDTH))

    def remember(carry: Any, x: Any) -> Any:
        params, memory = carry
        memory = step(params, memory, x)
        return (params, memory), memory

    def loss(params: Any) -> Any:
        return jnp.square(jax.lax.scan(remember, (params, jnp.zeros((ENVS, WIDTH))), x)[1]).sum()

    program = jax.jit(jax.grad(loss))
    return lambda: jax.block_until_ready(program(params))


CELLS = {"torch.nn.GRUCell": in_torch, "nnx.GRUCell": in_nnx, "hk.GRU": in_haiku}


def seconds(call: Pass) -> float:
    """Processor seconds, which other processes do not lengthen as they do those of the clock."""
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    limit_threads(1)
    print("| cell | own, ms | ours, ms | own / ours | middle half |\n|---|---|---|---|---|")
    for name, make in CELLS.items():
        sides = make(True), make(False)
        for side in sides:
            side()
        # Either side goes first in every other round.
        turns = [[seconds(side) for side in sides[:: 1 if i % 2 else -1]][:: 1 if i % 2 else -1] for i in range(rounds)]
        own, ours = (statistics.median(times) for times in zip(*turns, strict=True))
        low, middle, high = statistics.quantiles((a / b for a, b in turns), n=4)
        print(f"| `{name}` | {1e3 * own:.1f} | {1e3 * ours:.1f} | {middle:.2f} | {low:.2f} to {high:.2f} |", flush=True)


if __name__ == "__main__":
    main()
