"""Algorithms, backends and networks of other packages: found, listed, run and proven without an edit of ours."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY
from example_packages import EXAMPLES, forget, installed, on_path, write_metadata

from benchback import parity, registry
from benchback.agent import networks, start
from benchback.cli.matrix import matrix
from benchback.cli.matrix import parity as parity_verb
from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.record import Cell
from benchback.registry import ALGORITHMS, BACKENDS, NETWORKS, Algorithm, Spec
from benchback.training import advance
from benchback.training.run import Run, build

MINE = Spec("Mine", "jax", ("none", "jit"), "jit", "mine", "numpy", "#000000")


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    forget()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with installed("my_network", tmp_path_factory.mktemp("network")):
        yield


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if find_spec("keras") is None:
        pytest.skip("needs Keras: pip install 'keras>=3.15'")
    with installed("my_backend", tmp_path_factory.mktemp("backend")):
        yield


# The registry.


def test_what_a_module_adds_is_in_the_registry() -> None:
    registry.add_backend("mine", MINE, package="my_backend")
    registry.add_algorithm("mine", Algorithm("Mine", ("discrete",), "gymnax/CartPole-v1"), package="my_algorithm")
    registry.add_network("mine", {"linen": "my_network.linen"}, package="my_network")
    assert (BACKENDS["mine"], BACKENDS.origin("mine"), BACKENDS.origin("linen")) == (MINE, "my_backend", "benchback")
    assert [list(known)[-1] for known in (ALGORITHMS, BACKENDS, NETWORKS)] == ["mine"] * 3
    registry.add_backend("mine", MINE, package="my_backend")  # the same again, as by an entry point and --import
    with pytest.raises(InputError, match="already one of my_backend"):
        registry.add_backend("mine", MINE, package="another")


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("linen", MINE, "backend=linen is already one of benchback; choose another name"),
        ("My Backend", MINE, "no name; use lower-case"),
        ("mine", "a text", "backend=mine is a str, not a Spec"),
    ],
)
def test_a_plug_in_that_does_not_fit_is_refused(name: str, record: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BACKENDS.add(name, record, package="my_backend")


def test_a_broken_plug_in_is_listed_with_its_reason_and_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "plug_broken.py").write_text("import no_such_framework")
    (tmp_path / "plug_whole.py").write_text(
        "from benchback.registry import Spec\nSPEC = Spec(" + '"W", "jax", ("none",), "none", "w", "numpy", "#000000")'
    )
    entries = {"broken": "plug_broken:SPEC", "whole": "plug_whole:SPEC", "linen": "plug_whole:SPEC"}
    write_metadata(tmp_path, "plug", "1.2", {"benchback.backends": entries})
    with on_path(tmp_path):
        assert BACKENDS.origin("whole") == "plug 1.2"
        assert BACKENDS["linen"].title == "Flax Linen"
        listed = {row["name"]: row["reason"] for row in matrix()["broken"]}
        assert listed["broken"] == "plug 1.2: ModuleNotFoundError: No module named 'no_such_framework'"
        assert "already one of benchback" in listed["linen"]
        with pytest.raises(InputError, match=r"backend=broken cannot be used: plug 1.2: .*no_such_framework"):
            Run(config=TINY, backend="broken")
        with pytest.raises(InputError, match="algorithm=ppo is not written in backend=whole; choose one of linen"):
            Run(config=TINY, backend="whole")


def test_built_in_names_are_found_without_reading_entry_points() -> None:
    code = (
        "from benchback import registry; from benchback.training.run import Run; Run(registry.config('ppo')());"
        "assert not [k for k in (registry.ALGORITHMS, registry.BACKENDS, registry.NETWORKS) if 'installed' in vars(k)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# A network.


@pytest.mark.usefixtures("network")
def test_a_network_is_listed_with_its_origin_and_backends() -> None:
    assert matrix()["networks"]["residual"] == {
        "backends": ["linen", "purejax", "pytorch"],
        "algorithms": [],
        "from": "my-network 0.1.0",
    }
    assert matrix()["networks"]["mlp"]["from"] == "benchback"


@pytest.mark.usefixtures("network")
def test_a_network_that_a_backend_lacks_is_refused_with_those_that_have_it() -> None:
    config = replace(TINY, network="residual")
    with pytest.raises(InputError, match="network=residual does not exist for haiku, only for linen, purejax, pytorch"):
        Run(config=config, backend="haiku")
    with pytest.raises(InputError, match="network=resdiual is unknown; did you mean residual"):
        Run(config=replace(TINY, network="resdiual"))


@pytest.mark.usefixtures("network")
def test_a_network_for_another_purpose_than_it_has_is_refused() -> None:
    config = registry.config("dqn")(network="residual", hidden_sizes=(8, 8), num_envs=2)
    run = Run(config=config, backend="purejax")
    with pytest.raises(InputError, match=r"not for this algorithm: my_network.purejax has no Q_NETWORK"):
        build(run)


def test_cells_of_the_usual_network_keep_their_identity_and_others_have_their_own() -> None:
    stored = {name: x for name, x in Run(config=TINY).to_dict().items() if name not in ("network", "seed")}
    before, now, other = (Cell(stored | more) for more in ({}, {"network": "mlp"}, {"network": "residual"}))
    assert (before.id, before.group, before.proof) == (now.id, now.group, now.proof)
    assert (before.group == other.group, other.proof.split("/")[4]) == (False, "residual")
    assert Run.from_dict(stored).network == "mlp"


@pytest.mark.usefixtures("network")
def test_networks_of_a_plug_in_are_proven_against_numpy_and_another_backend() -> None:
    rows = list(parity.measure("ppo", ["linen"], ["float32"], ["L0", "L3"], mode="jit", network="residual"))
    assert [row for row in rows if not row.ok] == []
    assert {row.quantity for row in rows} >= {"log_prob", "value", "greedy", "weight/purejax", "action/purejax"}


@pytest.mark.usefixtures("network")
def test_in_float64_a_network_is_as_exact_as_the_built_in_one() -> None:
    rows = list(parity.measure("ppo", ["purejax"], ["float64"], ["L0"], mode="jit", network="residual"))
    assert {row.quantity: row.ok for row in rows} == {"greedy": True, "log_prob": True, "value": True}


@pytest.mark.usefixtures("network")
def test_torch_and_jax_agree_on_the_network_of_a_plug_in() -> None:
    rows = list(parity.measure("ppo", ["pytorch"], ["float32"], ["L0", "L3"], network="residual"))
    assert [row for row in rows if not row.ok] == []
    assert "weight/jax" in {row.quantity for row in rows}


@pytest.mark.usefixtures("network")
def test_a_wrong_forward_pass_of_a_plug_in_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    own = import_module("my_network.purejax")

    right = own.normalise
    monkeypatch.setattr(own, "normalise", lambda x, scale, bias: right(x, scale, bias) * 1.001)
    rows = list(parity.measure("ppo", ["purejax"], ["float32"], ["L0"], mode="jit", network="residual"))
    assert {"log_prob", "value"} <= {row.quantity for row in rows if not row.ok}


def test_a_network_whose_module_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "plug_lame.py").write_text("import no_such_framework")
    with on_path(tmp_path):
        registry.add_network("lame", {"purejax": "plug_lame"}, package="plug_lame")
        with pytest.raises(InputError, match=r"network=lame of plug_lame cannot be imported: .*no_such_framework"):
            build(Run(config=replace(TINY, network="lame"), backend="purejax"))


# A backend.


@pytest.mark.usefixtures("backend")
def test_a_backend_is_listed_where_it_has_the_algorithm() -> None:
    found = matrix()["algorithms"]
    assert found["ppo"]["backends"]["keras"]["from"] == "my-backend 0.1.0"
    assert "keras" not in found["dqn"]["backends"]
    with pytest.raises(InputError, match="algorithm=dqn is not written in backend=keras"):
        Run(config=registry.config("dqn")(), backend="keras")


@pytest.mark.usefixtures("backend")
def test_a_campaign_depends_on_the_source_and_the_library_of_a_plug_in() -> None:
    found = machine.fingerprint()
    assert "version keras" in found
    assert len(found["version my_backend (plug-in)"]) == 16


@pytest.mark.usefixtures("backend")
def test_parity_of_a_backend_of_a_plug_in(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--mode", "jit", "--dtypes", "float32", "--levels", "L3", "laws", "compiles"]
    assert parity_verb(["--backend", "keras", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["level"] for row in found["rows"]] == ["L3", "laws", "compiles"]


@pytest.mark.usefixtures("backend")
def test_a_checkpoint_of_a_plug_in_is_read_by_a_built_in_backend() -> None:
    agent, _ = build(Run(config=TINY, backend="keras"))
    state, _ = advance(agent, start(agent, 3))
    weights = networks(agent.export(state))
    other, _ = build(Run(config=TINY, backend="purejax"))
    loaded = networks(other.export(other.load(start(other, 0), weights)))
    assert all(np.array_equal(weights[name], loaded[name]) for name in weights | loaded)


@pytest.mark.slow
@pytest.mark.usefixtures("backend")
def test_a_backend_of_a_plug_in_passes_everything() -> None:
    assert parity_verb(["--backend", "keras"]) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("network")
def test_a_network_of_a_plug_in_passes_everything() -> None:
    assert parity_verb(["--network", "residual", "--backends", "linen", "purejax"]) == 0


# An algorithm.


def write_algorithm(folder: Path) -> None:
    """A package with VPG under another name, which is written in two backends and has no oracle."""
    package = folder / "plug_algorithm"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from benchback.registry import Algorithm\n"
        "RECORD = Algorithm('Mine', ('discrete',), 'gymnax/CartPole-v1', draws=0)\n"
    )
    (package / "config.py").write_text(
        "from dataclasses import dataclass\nfrom typing import ClassVar\nfrom benchback.algorithms.vpg import config\n"
        "@dataclass(frozen=True)\nclass Config(config.Config):\n"
        "    algorithm: ClassVar[str] = 'mine'\n    num_value_steps: int = 2\n"
    )
    for backend in ("purejax", "linen"):
        (package / f"{backend}.py").write_text(f"from benchback.algorithms.vpg.{backend} import make\n")


def test_an_algorithm_without_an_oracle_is_proven_against_plain_jax(tmp_path: Path) -> None:
    write_algorithm(tmp_path)
    write_metadata(tmp_path, "plug-algorithm", "2.0", {"benchback.algorithms": {"mine": "plug_algorithm:RECORD"}})
    with on_path(tmp_path):
        assert registry.backends_of("mine") == ("linen", "purejax")
        rows = list(parity.measure("mine", ["linen"], ["float32"], mode="jit", levels=["L0", "L1", "L3"]))
        assert [row for row in rows if not row.ok] == []
        assert {row.level for row in rows} == {"L3"}
        assert "weight/purejax" in {row.quantity for row in rows}
        run = Run.from_dict({"algorithm": "mine", "backend": "linen", "num_envs": 2, "num_steps": 4})
        assert run.algorithm == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("example", ["my_backend", "my_network"])
def test_an_example_can_be_built_and_its_entry_points_are_in_the_wheel(example: str, tmp_path: Path) -> None:
    pytest.importorskip("build", reason="needs build: pip install build")
    # Of a copy: a build leaves folders beside the sources.
    source = shutil.copytree(EXAMPLES / example, tmp_path / "source")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    assert len(list(tmp_path.glob(f"{example}-0.1.0-*.whl"))) == 1
