"""Every backend learns: a mean return of 195 on CartPole within 100,000 steps."""

from itertools import islice

import pytest
from test_contract import IN_PROCESS

from benchback import registry
from benchback.algorithms.ppo.config import Config
from benchback.evaluate import evaluate
from benchback.run import Run
from benchback.train import train


@pytest.mark.parametrize("name", registry.BACKENDS)
def test_cartpole_reaches_195_within_100k_steps(name: str) -> None:
    config = Config()
    env = "torch/CartPole-v1" if name == "pytorch" else "gymnax/CartPole-v1"
    run = Run(config, env=env, backend=name, mode=IN_PROCESS[name])
    best, last = 0.0, {}
    for progress in islice(train(run), 100_000 // config.batch_size):
        best, last = max(best, progress.rows[-1]["episode_return"]), progress.export()
    assert best >= 195
    assert evaluate(run, last, episodes=16).mean() >= 195
