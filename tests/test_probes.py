"""In environments whose values are known, every backend learns them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchback import envs
from benchback.algorithms.ppo.config import Config
from benchback.parity import probes
from benchback.parity.ppo.cases import PROBE
from benchback.parity.probes import Learnt
from benchback.registry import BACKENDS

MODES = {name: spec.best for name, spec in BACKENDS.items()} | {"pytorch": "env_jit"}
"""The best mode of each backend; torch.compile cannot see through the annotation checks of these tests."""


FAMILIES = ("purejax", "pytorch")
EVERY = [pytest.param(name, marks=[] if name in FAMILIES else [pytest.mark.slow]) for name in BACKENDS]


@cache
def learnt(backend: str, probe: str, config: Config = PROBE) -> Learnt:
    return probes.learnt("ppo", backend, probe, config, MODES[backend])


# What CutTarget is worth to a policy that draws its actions depends on how widely it still draws.
PROBES = [name for name in envs.SUITES["probe"] if name != "CutTarget"]
TELLING = ("TwoStep",)
"""The probe that every backend learns by default, with a later reward; one of each family learns all."""
LEARNT = [
    pytest.param(backend, probe, marks=[] if backend in FAMILIES or probe in TELLING else [pytest.mark.slow])
    for backend in BACKENDS
    for probe in PROBES
]


@pytest.mark.parametrize(("backend", "probe"), LEARNT)
def test_backend_learns_the_known_value(backend: str, probe: str) -> None:
    batch = learnt(backend, probe).batch
    obs = batch.obs[..., 0].astype(float)
    assert np.abs(batch.value - probes.known_value(probe, obs, PROBE.gamma)).max() < 0.05


@pytest.mark.parametrize("backend", EVERY)
def test_backend_learns_the_rewarded_action(backend: str) -> None:
    found = learnt(backend, "ActionReward")
    assert (found.greedy == 1).all()
    assert (found.batch.action == 1).mean() > 0.9


@pytest.mark.parametrize("backend", EVERY)
def test_backend_learns_the_best_of_a_constant(backend: str) -> None:
    assert np.abs(learnt(backend, "Target").greedy - 0.5).max() < 0.1


@pytest.mark.parametrize("backend", BACKENDS)
def test_backend_learns_the_best_of_real_valued_actions(backend: str) -> None:
    found = learnt(backend, "ObsTarget")
    assert np.abs(found.greedy - 0.5 * found.batch.obs[0]).max() < 0.1
    # It has also learnt to stop trying others.
    assert np.abs(found.batch.action - 0.5 * found.batch.obs).std() < 0.3


@pytest.mark.parametrize("backend", FAMILIES)
def test_without_bootstrapping_through_truncation_the_probe_fails(backend: str) -> None:
    value = learnt(backend, "Truncated", replace(PROBE, truncation="terminal")).batch.value
    # One and two rewards remain in turn, and the observation does not tell which.
    assert value.max() < 1.5


@pytest.mark.parametrize(("backend", "probe"), [(b, p) for b in FAMILIES for p in envs.SUITES["probe"]])
def test_probe_is_what_it_says(backend: str, probe: str) -> None:
    batch = learnt(backend, probe).batch
    length = {"TwoStep": 2, "Truncated": 2, "CutTarget": 2}.get(probe, 1)
    done = batch.terminated | batch.truncated
    assert (batch.episode_length[done] == length).all()
    assert done.mean() == 1 / length
    assert batch.truncated.any() == (probe in ("Truncated", "CutTarget"))
    assert batch.terminated.any() == (probe not in ("Truncated", "CutTarget"))
    if probe == "ObsReward":
        assert np.array_equal(batch.reward, batch.obs[..., 0])
        assert set(batch.reward.ravel()) == {-1.0, 1.0}
