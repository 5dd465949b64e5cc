"""Checkpoints: nothing lost, nothing run, any backend reads any other's."""

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import TINY
from representatives import representatives, slow
from safetensors.numpy import save_file
from test_contract import IN_PROCESS, built

from benchback.agent import network_of, start
from benchback.algorithms.ppo.loss import Minibatch
from benchback.parity.laws import different
from benchback.parity.subject import Subject
from benchback.training import checkpoint, train
from benchback.training.checkpoint import Checkpoint, CheckpointError
from benchback.training.run import Run
from benchback.training.run_dir import RunDir, open_run


def tiny_run(name: str, env: str = "gymnax/CartPole-v1", unit: str = "phase") -> Run:
    return Run(TINY, env=env, backend=name, mode=IN_PROCESS[name], unit=unit, seed=3, chunk=2)


def snapshots(run: Run, start: Checkpoint | None = None) -> dict[int, Checkpoint]:
    return {p.iteration: Checkpoint(p.export(), p.iteration, run.to_dict()) for p in train(run, start)}


@pytest.mark.parametrize("name", ["purejax", "pytorch", *map(slow, ("linen", "nnx", "equinox", "haiku"))])
def test_resuming_at_any_iteration_equals_the_unbroken_run_bit_for_bit(name: str, tmp_path: Path) -> None:
    run = tiny_run(name)
    unbroken = snapshots(run)
    for iteration in (1, 5):
        path = tmp_path / f"{iteration}.safetensors"
        checkpoint.write(path, unbroken[iteration])
        resumed = snapshots(run, checkpoint.read(path))
        assert different(unbroken[TINY.num_iterations].weights, resumed[TINY.num_iterations].weights) == []


@cache
def written_by(name: str) -> Checkpoint:
    return snapshots(tiny_run(name))[2]


@pytest.mark.parametrize("writer", ["linen", "equinox", "pytorch"])
@pytest.mark.parametrize("reader", representatives())
def test_any_backend_takes_over_any_other_s_network_and_optimiser(writer: str, reader: str) -> None:
    """Arrays equal; the next gradient step within the tolerance of parity."""
    theirs = network_of(written_by(writer).weights)
    after = {}
    for name in (writer, reader):
        subject = Subject("ppo", name, "float32", {})
        agent, _ = built(name, IN_PROCESS[name])
        state = start(agent, 9, theirs)
        assert different(theirs, network_of(agent.export(state))) == []
        state, _ = agent.learn(state, subject.place_all(minibatch()))
        after[name] = network_of(agent.export(state))
    for name, array in after[reader].items():
        np.testing.assert_allclose(array, after[writer][name], rtol=1e-5, atol=1e-6, err_msg=name)


def minibatch() -> Minibatch:
    random = np.random.default_rng(0)
    reals = [random.normal(size=16) for _ in range(4)]
    return Minibatch(random.normal(size=(16, 4)), random.integers(0, 2, 16), *reals)


@pytest.mark.parametrize(("writer", "reader"), [("linen", "nnx"), ("haiku", "purejax"), ("equinox", "linen")])
def test_within_the_jax_family_a_run_goes_on_as_if_nothing_happened(writer: str, reader: str) -> None:
    theirs = written_by(writer)
    ours = next(train(tiny_run(reader), theirs))
    unbroken = next(train(tiny_run(writer), theirs))
    assert ours.iteration == 3
    found, expected = ours.export(), unbroken.export()
    assert {"env/obs", "rng"} <= found.keys()
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_across_families_the_environment_starts_afresh() -> None:
    ours = next(train(tiny_run("purejax"), written_by("pytorch")))
    assert ours.iteration == 3
    assert ours.export()["adam/count"] == written_by("pytorch").weights["adam/count"] + TINY.updates_per_iteration


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    weights = {"actor/0/kernel": np.arange(12.0, dtype=np.float32).reshape(3, 4), "adam/count": np.array(7)}
    checkpoint.write(path, Checkpoint(weights, 5, {"algorithm": "ppo"}))
    return path


def test_a_checkpoint_comes_back_as_it_was(example: Path) -> None:
    back = checkpoint.read(example)
    assert (back.iteration, back.run) == (5, {"algorithm": "ppo"})
    assert back.weights["actor/0/kernel"].tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert back.weights["adam/count"].shape == ()
    assert back.weights["adam/count"] == 7
    assert [path.name for path in example.parent.iterdir()] == ["checkpoint.safetensors"]


def test_every_truncation_is_noticed(example: Path) -> None:
    whole = example.read_bytes()
    for length in range(0, len(whole), 7):
        example.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            checkpoint.read(example)


def test_every_flipped_bit_is_noticed_or_harmless(example: Path) -> None:
    whole, original = example.read_bytes(), checkpoint.read(example)
    for position in range(len(whole)):
        example.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
        try:
            damaged = checkpoint.read(example)
        except CheckpointError:
            continue
        assert different(original.weights, damaged.weights) == []
        assert (original.iteration, original.run) == (damaged.iteration, damaged.run)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps({"a": Bomb()}), "could run code"),
        (b"PK\x03\x04" + bytes(100), "could run code"),
        (b"", "truncated"),
        (b"hello world, this is no checkpoint", "truncated or not"),
        ((2**62).to_bytes(8, "little") + b"{}", "truncated"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        checkpoint.read(path)


def test_safetensors_of_others_are_refused(tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a benchback checkpoint"):
        checkpoint.read(tmp_path / "model.safetensors")


def test_a_newer_format_is_refused(example: Path) -> None:
    example.write_bytes(example.read_bytes().replace(b'"version":"1"', b'"version":"9"'))
    with pytest.raises(CheckpointError, match="upgrade benchback"):
        checkpoint.read(example)


def test_a_checkpoint_of_another_network_is_refused() -> None:
    theirs = snapshots(tiny_run("purejax"))[1]
    other = Run(replace(TINY, hidden_sizes=(16,)), backend="purejax")
    with pytest.raises(CheckpointError, match="same env and hidden sizes"):
        next(train(other, theirs))


@pytest.mark.parametrize(("name", "gradients"), [("linen", "reordered"), ("pytorch", "framework")])
def test_a_run_from_before_there_was_a_choice_of_gradients_goes_on_as_it_was(
    name: str, gradients: str, tmp_path: Path
) -> None:
    stored = {field: x for field, x in tiny_run(name).to_dict().items() if field != "gradients"}
    checkpoint.write(RunDir(tmp_path).checkpoint, Checkpoint({}, 2, stored))
    _, found = open_run(tmp_path)
    assert Run.from_dict(found.run).gradients == gradients
