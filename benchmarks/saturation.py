"""How far TD3's policy is at its bounds: what goes into tanh, along a training on HalfCheetah-v5.

    python benchmarks/saturation.py --scale 1.4142135623730951 --update-after 1000 --steps 5000

Prints the mean absolute input of tanh and the share of actions beyond 0.99 of the bound, on the last 2,000
observations, and the greedy return of three episodes, every 5,000 steps. `--weights` replaces those of TD3 in plain
JAX: orthogonal with `--scale` in the hidden layers and `--policy-scale` in the policy's output, LeCun normal, or
uniform as PyTorch's linear layers have them.
"""

import argparse
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from benchback.agent import start
from benchback.algorithms.td3 import purejax
from benchback.backends.purejax import init_mlp, mlp
from benchback.cli.arguments import limit_threads
from benchback.training import advance
from benchback.training.evaluate import Evaluator
from benchback.training.run import Run, build

APART, LAST, EPISODES = 5_000, 2_000, 3
POLICY_SCALE = 0.01
"""Scale of the policy's output weights in TD3; that of the critics is another, 1."""


def lecun(key: Any, sizes: tuple[int, ...], head_scale: float, dtype: Any, hidden_scale: float) -> Any:
    """Normal weights of variance 1 / fan-in in every layer, zero biases."""
    draw = jax.nn.initializers.lecun_normal()
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"kernel": draw(k, shape, dtype), "bias": jnp.zeros(shape[1], dtype)}
        for k, shape in zip(keys, pairwise(sizes), strict=True)
    ]


def uniform(key: Any, sizes: tuple[int, ...], head_scale: float, dtype: Any, hidden_scale: float) -> Any:
    """Weights and biases uniform within 1 / sqrt(fan-in), as PyTorch's linear layers have them."""
    layers = []
    for k, shape in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        kernel_key, bias_key = jax.random.split(k)
        limit = shape[0] ** -0.5
        kernel = jax.random.uniform(kernel_key, shape, dtype, -limit, limit)
        layers.append({"kernel": kernel, "bias": jax.random.uniform(bias_key, shape[1:], dtype, -limit, limit)})
    return layers


WEIGHTS: dict[str, Callable[..., Any]] = {"orthogonal": init_mlp, "lecun": lecun, "uniform": uniform}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", choices=WEIGHTS, default="orthogonal")
    parser.add_argument("--scale", type=float, default=purejax.HIDDEN_SCALE)
    parser.add_argument("--policy-scale", type=float, default=POLICY_SCALE)
    parser.add_argument("--update-after", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    limit_threads(1)
    draw = WEIGHTS[given.weights]

    def init(key: Any, sizes: tuple[int, ...], head_scale: float, dtype: Any, hidden_scale: float) -> Any:
        head_scale = given.policy_scale if head_scale == POLICY_SCALE else head_scale
        return draw(key, sizes, head_scale, dtype, hidden_scale)

    purejax.init_mlp, purejax.HIDDEN_SCALE = init, given.scale
    fields = {
        "algorithm": "td3",
        "env": "gymnasium/HalfCheetah-v5",
        "backend": "purejax",
        "unit": "chunk",
        "chunk": 100,
    }
    sizes = {"num_iterations": given.steps // 50, "replay_capacity": given.steps, "update_after": given.update_after}
    run = Run.from_dict(fields | sizes)
    agent, _ = build(run)
    state, evaluate = start(agent, given.seed), Evaluator(run, EPISODES)
    into_tanh = jax.jit(lambda layers, obs: jnp.abs(mlp(layers, obs, "relu")))
    print("| steps | into tanh | beyond 0.99 | greedy return |\n|---|---|---|---|")
    for env_steps in range(APART, given.steps + 1, APART):
        state, _ = advance(agent, state)
        size = into_tanh(state.params["actor"], state.replay.data.obs[env_steps - LAST : env_steps])
        beyond = float((jnp.tanh(size) > 0.99).mean())
        returned = evaluate(agent.export(state), 1000 + given.seed, 1000).mean()
        print(f"| {env_steps:,} | {float(size.mean()):.1f} | {beyond:.3f} | {returned:.0f} |", flush=True)


if __name__ == "__main__":
    main()
