"""L2, the same for every algorithm: several gradient steps beside the oracle, where small differences accumulate."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchback.agent import Agent, Weights, start
from benchback.parity import deviation
from benchback.parity.deviation import Deviation
from benchback.parity.subject import Subject

Learn = Callable[[Weights, Any], tuple[Weights, dict[str, Any]]]
"""The oracle's gradient step: (weights, minibatch) -> weights, metrics."""


def gradient_steps(
    subject: Subject, agent: Agent, seed: int, weights: Weights, minibatches: Iterable[Any], learn: Learn
) -> Iterator[Deviation]:
    """Deviations of the metrics of every step and of the weights after the last, both sides starting from `weights`."""
    state, expected = start(agent, seed, weights), weights
    for minibatch in minibatches:
        state, metrics = agent.learn(state, subject.place_all(minibatch))
        expected, expected_metrics = learn(expected, minibatch)
        yield from deviation.of_metrics(subject.fetch(metrics), expected_metrics)
    yield from deviation.of_weights(agent.export(state), expected)
