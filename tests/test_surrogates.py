"""PPO's other surrogates: discovered policy optimisation, and drifts read from a file."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from conftest import TINY
from representatives import quickest

from benchback import parity
from benchback.algorithms.ppo.config import Config
from benchback.cli.matrix import matrix
from benchback.errors import InputError
from benchback.math import jax as jax_math
from benchback.math import torch as torch_math
from benchback.measure.parity_worker import rows_of
from benchback.measure.record import Cell
from benchback.parity.execution import NUM_MEMBERS, population
from benchback.parity.ppo import cases, oracle
from benchback.parity.subject import Subject, computing
from benchback.population.spec import Members, Population, members_of
from benchback.population.training import built, train_members
from benchback.registry import BACKENDS
from benchback.training.run import Run

RATIO = np.array([1.0, 1.0, 1.0, 1e-3, 0.5, 0.9, 1.1, 1.5, 4.0, 50.0])
ADVANTAGE = np.array([-3.0, -0.5, 0.0, 0.5, 3.0])
GRID = tuple(x.ravel() for x in np.meshgrid(np.log(RATIO), ADVANTAGE))
"""Every ratio with every advantage; r = 1 and A = 0 among them."""
CONFIGS = {config.surrogate: config for config in (cases.DRIFT, cases.LEARNED)}


def arguments(config: Config) -> tuple[Any, ...]:
    """What a twin's surrogate takes beside ratio and advantage."""
    if config.surrogate == "drift":
        return np.array(config.drift_alpha), np.array(config.drift_beta)
    return (np.array(config.objective),)


def of_jax(config: Config, log_ratio: np.ndarray, advantage: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss in float64, and its derivative by log r."""
    with jax.enable_x64(True):
        rest = [jnp.asarray(x) for x in (advantage, *arguments(config))]
        function = getattr(jax_math, f"{config.surrogate}_surrogate")
        loss, slope = jax.value_and_grad(function)(jnp.asarray(log_ratio), *rest)
        return float(loss), np.asarray(slope)


def of_torch(config: Config, log_ratio: np.ndarray, advantage: np.ndarray) -> tuple[float, np.ndarray]:
    x = torch.tensor(log_ratio, requires_grad=True)
    rest = [torch.tensor(given) for given in (advantage, *arguments(config))]
    loss = getattr(torch_math, f"{config.surrogate}_surrogate")(x, *rest)
    (slope,) = torch.autograd.grad(loss, [x])
    return float(loss.detach()), slope.numpy()


@pytest.mark.parametrize("twin", [of_jax, of_torch])
@pytest.mark.parametrize("surrogate", CONFIGS)
def test_loss_and_gradient_are_the_oracles_at_every_ratio_and_advantage(surrogate: str, twin: Any) -> None:
    config = CONFIGS[surrogate]
    log_ratio, advantage = GRID
    gain, slope = oracle.SURROGATES[surrogate](log_ratio, advantage, config)
    loss, found = twin(config, log_ratio, advantage)
    np.testing.assert_allclose(loss, -gain.mean(), rtol=1e-12)
    np.testing.assert_allclose(found, -slope / len(slope), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("surrogate", CONFIGS)
def test_the_oracles_gradient_equals_finite_differences(surrogate: str) -> None:
    config, function = CONFIGS[surrogate], oracle.SURROGATES[surrogate]
    log_ratio, advantage = GRID
    # At r = 1 the learned drift begins within the margin, which is as small as the differences.
    moved = log_ratio != 0
    high, low = (function(log_ratio + step, advantage, config)[0] for step in (1e-6, -1e-6))
    slope = function(log_ratio, advantage, config)[1]
    np.testing.assert_allclose(((high - low) / 2e-6)[moved], slope[moved], rtol=1e-6, atol=1e-6)


def test_dpo_is_what_its_paper_says_in_numbers() -> None:
    """By hand: alpha 2 and beta 0.6 at r = 2, A = 3 and at r = 1/2, A = -3; r A where it returns to the old policy."""
    config = Config(surrogate="drift")
    log_ratio, advantage = np.log([2.0, 0.5, 0.5, 2.0]), np.array([3.0, -3.0, 3.0, -3.0])
    u = 3 * np.log(2)
    expected = [6 - (3 - 2 * np.tanh(1.5)), -1.5 - (u - 0.6 * np.tanh(u / 0.6)), 1.5, -6.0]
    np.testing.assert_allclose(oracle.drift_gain(log_ratio, advantage, config)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("surrogate", CONFIGS)
def test_a_drift_is_never_negative_and_zero_with_zero_gradient_at_ratio_one(surrogate: str) -> None:
    """What mirror learning asks of a drift, for any weights."""
    random = np.random.default_rng(0)
    log_ratio, advantage = random.normal(size=400), random.normal(size=400) * 3
    at_one = np.zeros(400)
    for trial in range(20):
        config = CONFIGS[surrogate]
        if surrogate == "learned":
            config = replace(config, objective=tuple(random.normal(size=9 * 5) * 10.0 ** (trial % 4 - 1)))
        gain, _ = oracle.SURROGATES[surrogate](log_ratio, advantage, config)
        assert (np.exp(log_ratio) * advantage - gain >= 0).all()
        for twin in (of_jax, of_torch):
            loss, slope = twin(config, at_one, advantage)
            np.testing.assert_allclose(loss, -advantage.mean(), rtol=1e-12)
            np.testing.assert_allclose(slope, -advantage / 400, rtol=1e-12)


def test_the_clip_fraction_is_that_of_the_clipping_range_whatever_the_surrogate() -> None:
    for config in (cases.BASE, *CONFIGS.values()):
        case = cases.steps_of_surrogate(config)[1]
        metrics = oracle.learn(case.weights, case.minibatch, config)[1]
        change = oracle.log_prob(case.weights, case.minibatch.obs, case.minibatch.action) - case.minibatch.log_prob
        assert metrics["clip_fraction"] == np.mean(np.abs(np.exp(change) - 1) > config.clip)


def test_the_surrogates_are_listed_with_their_algorithms() -> None:
    assert matrix()["surrogates"] == {name: {"algorithms": ["ppo"]} for name in ("clip", "drift", "learned")}


# As data.


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"surrogate": "learned"}, "needs its weights; give --objective FILE"),
        ({"objective": (0.0,) * 9}, "not used by surrogate=clip; use --surrogate learned"),
        ({"surrogate": "learned", "objective": (0.0,) * 10}, "10 numbers and must have finite ones, 9 for each"),
        ({"surrogate": "learned", "objective": (float("nan"),) * 9}, "must have finite ones"),
        ({"surrogate": "drift", "drift_alpha": 0.0}, "drift_alpha=0.0 must be greater than 0, e.g. 2.0"),
    ],
)
def test_a_surrogate_that_makes_no_sense_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Config(**given)


def test_a_run_holds_the_weights_of_its_drift_and_usual_runs_are_written_as_before() -> None:
    run = Run(cases.LEARNED)
    assert Run.from_dict(run.to_dict()).config == run.config
    assert run.to_dict()["objective"] == list(cases.LEARNED.objective)
    assert not {"surrogate", "objective", "drift_alpha"} & Run(TINY).to_dict().keys()
    assert Run.from_dict({"surrogate": "learned", "objective": [0] * 9}).config.objective == (0.0,) * 9


def test_weights_of_a_drift_are_not_varied_as_a_number() -> None:
    with pytest.raises(InputError, match="objective: it is part of the program"):
        members_of(Population({"objective": "0..1:2"}), Run(TINY))


@pytest.fixture(scope="module")
def different_drifts() -> tuple[Run, Members]:
    """Three members with drifts of their own."""
    random = np.random.default_rng(1)
    drifts = tuple(tuple(map(float, x)) for x in random.normal(size=(3, 9 * 2)).astype(np.float32))
    config = replace(TINY, surrogate="learned", objective=drifts[0], num_iterations=2, learning_rate=0.01)
    run = Run(config, backend="purejax", unit="chunk", chunk=2)
    return run, Members((5, 5, 5), {"objective": drifts})


@pytest.mark.slow
def test_members_have_drifts_of_their_own(different_drifts: tuple[Run, Members]) -> None:
    """Each learns as it does in a population in which all have its drift, and otherwise than the others."""
    run, members = different_drifts
    build = cache(built)
    (together,) = train_members(run, members, group=2, build=build)
    loss = together.metrics["policy_loss"]
    assert len(np.unique(loss[-1])) == 3
    same = Members(members.seed, {"objective": (members.values["objective"][1],) * 3})
    (alike,) = train_members(run, same, group=2, build=build)
    np.testing.assert_allclose(alike.metrics["policy_loss"], loss[:, [1, 1, 1]], rtol=1e-5)
    assert members.run(run, 2).config.objective == members.values["objective"][2]


@pytest.mark.slow
def test_members_with_a_learned_drift_are_the_same_runs_alone() -> None:
    config = replace(cases.TINY, surrogate="learned", objective=cases.LEARNED.objective)
    with computing("float32", optimised=False):
        found = dict(population(Subject("ppo", "purejax", "float32", {}), config))
    assert NUM_MEMBERS > 2
    assert {name.split("/")[0] for name in found} >= {"weight", "metric", "greedy"}
    assert max(found.values()) < 1e-4


@pytest.mark.parametrize("members", [1, 4])
def test_the_gate_asks_for_a_proof_of_the_surrogate_that_is_timed(members: int) -> None:
    clip, drift = (Cell({**Run(TINY).to_dict(), **more}, members=members) for more in ({}, {"surrogate": "drift"}))
    assert "drift" in drift.proof.split("/")
    assert "drift" not in clip.proof.split("/")


def gradient_step_of(proof: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a proof passes whose only level is one gradient step."""
    monkeypatch.setattr(parity, "PROVEN", ("L1",))
    rows = list(rows_of(proof))
    assert len(rows) > 5
    return all(row["ok"] for row in rows)


DRIFT = "ppo/purejax/jit/phase/mlp/float32/framework/drift"


def test_a_program_with_another_surrogate_does_not_pass_by_the_proof_of_clip(monkeypatch: pytest.MonkeyPatch) -> None:
    def clipped(log_ratio: Any, advantage: Any, alpha: Any, beta: Any) -> Any:
        return jax_math.clipped_surrogate(log_ratio, advantage, jnp.array(0.1875))

    monkeypatch.setattr(jax_math, "drift_surrogate", clipped)
    assert not gradient_step_of(DRIFT, monkeypatch)


OPTIONS = [
    *(("ppo", name, "mlp", option) for name in BACKENDS for option in ("drift", "learned")),
    *(("ppo", name, network, "drift") for name in ("nnx", "equinox", "pytorch") for network in ("cnn", "gru")),
    *(("dqn", name, "mlp", "knots") for name in BACKENDS),
    *(("ppo", name, "mlp", "drift/population") for name in BACKENDS if BACKENDS[name].family == "jax"),
    ("dqn", "purejax", "mlp", "knots/population"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "backend", "network", "option"), OPTIONS)
def test_programs_with_other_options_are_proven_as_they_are_timed(
    algorithm: str, backend: str, network: str, option: str
) -> None:
    mode = quickest(backend)
    rows = list(rows_of(f"{algorithm}/{backend}/{mode}/phase/{network}/float32/framework/{option}"))
    assert [row for row in rows if not row["ok"]] == []
    assert len(rows) > 5
