"""Evaluation: the first episode of every environment, greedily, the same whoever asks."""

import numpy as np
import pytest

from benchback.agent import Weights
from benchback.evaluate import evaluate
from benchback.run import Run
from benchback.train import train

EPISODES = 6


@pytest.fixture(scope="module")
def run() -> Run:
    fields = {"backend": "purejax", "num_envs": 4}
    return Run.from_dict(fields | {"num_steps": 8, "num_iterations": 1, "num_minibatches": 2, "hidden_sizes": [8]})


@pytest.fixture(scope="module")
def weights(run: Run) -> Weights:
    return next(train(run)).export()


def test_a_return_does_not_change_when_the_others_play_on(run: Run, weights: Weights) -> None:
    whole = evaluate(run, weights, EPISODES, seed=3)
    assert not np.isnan(whole).any()
    assert len(set(whole)) > 1, "all episodes end at once: the test shows nothing"
    first = int(whole.min())
    short = evaluate(run, weights, EPISODES, seed=3, max_steps=first)
    # CartPole gives 1 for every step.
    assert np.array_equal(np.where(whole == first, whole, np.nan), short, equal_nan=True)


def test_an_evaluation_repeats_and_another_seed_differs(run: Run, weights: Weights) -> None:
    assert np.array_equal(evaluate(run, weights, EPISODES, seed=3), evaluate(run, weights, EPISODES, seed=3))
    assert not np.array_equal(evaluate(run, weights, EPISODES, seed=3), evaluate(run, weights, EPISODES, seed=4))
