"""Every backend learns: a mean return of 195 on CartPole within 100,000 steps.

One by default: with equal keys the JAX backends take equal actions, PyTorch learns the same from the same noise, which
parity shows, and every backend learns the values of probes.
"""

from itertools import islice

import pytest
from test_contract import IN_PROCESS

from benchback.algorithms.ppo.config import Config
from benchback.registry import BACKENDS
from benchback.training import train
from benchback.training.evaluate import evaluate
from benchback.training.run import Run

EVERY = [pytest.param(name, marks=[] if name == "linen" else [pytest.mark.slow]) for name in BACKENDS]


@pytest.mark.parametrize("name", EVERY)
def test_cartpole_reaches_195_within_100k_steps(name: str) -> None:
    config = Config()
    env = "torch/CartPole-v1" if name == "pytorch" else "gymnax/CartPole-v1"
    run = Run(config, env=env, backend=name, mode=IN_PROCESS[name])
    best, last = 0.0, {}
    for progress in islice(train(run), 100_000 // config.batch_size):
        best, last = max(best, progress.rows[-1]["episode_return"]), progress.export()
    assert best >= 195
    assert evaluate(run, last, episodes=16).mean() >= 195
