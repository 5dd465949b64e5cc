"""Studies: the published schedule to the letter, addressing by index, and what is refused before anything runs."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchback import registry
from benchback.errors import InputError
from benchback.measure.record import Cell
from benchback.measure.study import Product, Study, load, names, scaled, select
from benchback.training.run import Run

PUBLISHED = load("benchback_rl")
ENVS = [
    "CartPole",
    "Acrobot",
    "MountainCar",
    "DiscountingChain",
    "MemoryChain",
    "UmbrellaChain",
    "BernoulliBandit",
    "GaussianBandit",
]
ENVS += ["Asterix", "Breakout", "Freeway", "SpaceInvaders"]
COMPILED = [("torch", "torch.compile"), ("linen", "jax.jit"), ("nnx", "nnx.cached_partial")]
ALL_MODES = [
    *COMPILED,
    ("torch", "none"),
    ("linen", "none"),
    ("nnx", "none"),
    ("nnx", "nnx.jit"),
    ("torch", "torch.nocompile/env.jit"),
]
MODELS = ["small", "medium", "large"]


def published_rows() -> list[tuple[Any, ...]]:
    """The schedule as nested loops, written independently of the study."""
    rows = [("warmup", "Acrobot", *who, "small", "async") for who in COMPILED]
    for env in ENVS:
        for who in COMPILED:
            for model in MODELS:
                rows.append(("V2 Exp1: async", env, *who, model, "async"))
    for env in ENVS:
        for who in ALL_MODES:
            rows.append(("V2 Exp2: sync, envs", env, *who, "small", "sync"))
    for who in ALL_MODES:
        for model in MODELS:
            rows.append(("V2 Exp3: sync, models", "Acrobot", *who, model, "sync"))
    return rows


def row(study: Study, place: int) -> tuple[Any, ...]:
    entry = study.entries[place]
    env = entry.cell.run["env"].removeprefix("gymnax/").partition("-")[0]
    who = entry.published["framework"], entry.published["compile"]
    return entry.label, env, *who, entry.cell.run["model"], entry.cell.timing


def test_the_published_schedule_is_exact() -> None:
    assert [row(PUBLISHED, i) for i in range(len(PUBLISHED.entries))] == published_rows()
    assert [entry.index for entry in PUBLISHED.entries] == list(range(231))
    counts = Counter(entry.label for entry in PUBLISHED.entries)
    assert list(counts.items()) == [
        ("warmup", 3),
        ("V2 Exp1: async", 108),
        ("V2 Exp2: sync, envs", 96),
        ("V2 Exp3: sync, models", 24),
    ]


def test_published_rows_by_hand() -> None:
    assert row(PUBLISHED, 0) == ("warmup", "Acrobot", "torch", "torch.compile", "small", "async")
    assert row(PUBLISHED, 4) == ("V2 Exp1: async", "CartPole", "torch", "torch.compile", "medium", "async")
    assert row(PUBLISHED, 6) == ("V2 Exp1: async", "CartPole", "linen", "jax.jit", "small", "async")
    assert row(PUBLISHED, 112) == ("V2 Exp2: sync, envs", "CartPole", "linen", "jax.jit", "small", "sync")
    last = ("V2 Exp3: sync, models", "Acrobot", "torch", "torch.nocompile/env.jit", "large", "sync")
    assert row(PUBLISHED, 230) == last


def test_published_names_are_our_modes() -> None:
    ours = {tuple(e.published.values()): (e.cell.run["backend"], e.cell.run["mode"]) for e in PUBLISHED.entries}
    assert ours == {
        ("torch", "torch.compile"): ("pytorch", "compile"),
        ("linen", "jax.jit"): ("linen", "jit"),
        ("nnx", "nnx.cached_partial"): ("nnx", "cached_partial"),
        ("torch", "none"): ("pytorch", "none"),
        ("linen", "none"): ("linen", "none"),
        ("nnx", "none"): ("nnx", "none"),
        ("nnx", "nnx.jit"): ("nnx", "jit"),
        ("torch", "torch.nocompile/env.jit"): ("pytorch", "env_jit"),
    }


def test_published_hyper_parameters() -> None:
    for entry in PUBLISHED.entries:
        run = entry.cell.run
        assert (run["num_envs"], run["num_steps"], run["num_minibatches"], run["num_epochs"]) == (32, 256, 8, 10)
        assert (run["num_iterations"], run["truncation"], run["unit"]) == (100, "terminal", "phase")
        assert "seed" not in run


def test_repeated_configurations_are_one_cell() -> None:
    # By hand: the warm-up's 3 recur in experiment 1, Acrobot small's 8 in experiments 2 and 3.
    assert len(PUBLISHED.cells) == 231 - 3 - 8
    assert len({cell.group for cell in PUBLISHED.cells}) == 12 * 3 + 12 + 2


def test_entries_are_addressed_by_index() -> None:
    assert [e.index for e in select(PUBLISHED, index=42).entries] == [42]
    assert select(PUBLISHED, index=42).entries[0] == PUBLISHED.entries[42]
    assert [e.index for e in select(PUBLISHED, start=228).entries] == [228, 229, 230]
    assert [e.index for e in select(PUBLISHED, start=42, count=2).entries] == [42, 43]
    assert [e.index for e in select(PUBLISHED, count=2).entries] == [0, 1]
    assert [e.index for e in select(select(PUBLISHED, start=100), count=2).entries] == [100, 101]
    assert select(PUBLISHED) == PUBLISHED


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"index": 231}, "--index 231: benchback_rl has configurations 0 to 230"),
        ({"index": -1}, "--index -1"),
        ({"start": 999}, "--from 999"),
        ({"count": 0}, "--count 0 must be at least 1"),
        ({"index": 1, "count": 2}, "leave out --from and --count"),
    ],
)
def test_wrong_addresses_name_the_remedy(wanted: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        select(PUBLISHED, **wanted)


def test_studies_that_come_with_the_package() -> None:
    assert names() == [
        "algorithms",
        "backends",
        "benchback_rl",
        "compile_modes",
        "environments",
        "fused",
        "hour",
        "networks",
        "population",
        "search",
        "smoke",
    ]
    assert {name: len(load(name).entries) for name in names()} == {
        "smoke": 6,
        "benchback_rl": 231,
        "backends": 12 * 3 * 6,
        "compile_modes": 60 + 5,
        "environments": 4 * 3 + 3 * 2,
        "algorithms": 4 * 6,
        "fused": 5,
        "hour": 4 * 3 * 6,
        "networks": 3 * 2 * 6 + 2 * 5,
        "population": 6 + 4 * 5,
        "search": 6 + 5,
    }


@pytest.mark.parametrize("name", names())
def test_every_study_is_data(name: str) -> None:
    study = load(name)
    assert study.name == name
    assert study.description
    again = Study.from_dict(json.loads(json.dumps(study.to_dict())))
    assert (again.id, again.entries) == (study.id, study.entries)
    for cell in study.cells:
        run = Run.from_dict(dict(cell.run))
        assert {k: x for k, x in run.to_dict().items() if k != "seed"} == cell.run


def test_smoke_is_six_backends_doing_the_same_work() -> None:
    cells = load("smoke").cells
    assert [(c.run["backend"], c.run["mode"]) for c in cells] == [(b, s.best) for b, s in registry.BACKENDS.items()]
    assert len({cell.group for cell in cells}) == 1


def test_compile_modes_has_every_mode_and_unit_once() -> None:
    def offered(device: str) -> Counter[tuple[str, str, str]]:
        modes = {(b, m, u) for b, spec in registry.BACKENDS.items() for m in spec.modes for u in spec.units}
        modes = {x for x in modes if x[1:] != ("eager", "chunk")}
        return Counter(x for x in modes if device == "gpu" or x[1] != "cudagraphs")

    for device in ("cpu", "gpu"):
        cells = replace(load("compile_modes"), device=device).cells
        usual = [c for c in cells if c.gradients == "framework"]
        assert Counter((c.run["backend"], c.run["mode"], c.run["unit"]) for c in usual) == offered(device)
        reordered = [c.variant for c in cells if c not in usual]
        assert reordered == [
            f"{name}/{spec.best}/phase/reordered" for name, spec in registry.BACKENDS.items() if spec.family == "jax"
        ]
        assert len({cell.group for cell in cells}) == 1


def test_environments_compares_twins_in_one_group() -> None:
    groups: dict[str, set[str]] = {}
    for cell in load("environments").cells:
        groups.setdefault(cell.group, set()).add(cell.variant)
    everywhere = {"pytorch/compile/phase", "pytorch/compile/phase on torch", "linen/jit/phase"}
    in_python = {"pytorch/compile/phase on gymnasium", "linen/jit/phase on gymnasium"}
    assert list(groups.values()) == [everywhere | in_python] * 3 + [everywhere]


@pytest.mark.parametrize(
    ("env", "where"),
    [
        ("gymnax/CartPole-v1", ""),
        ("torch/CartPole-v1", " on torch"),
        ("gymnasium/CartPole-v1", " on gymnasium"),
        ("gymnasium/HalfCheetah-v5", ""),
        ("envpool/HalfCheetah-v4", " on envpool"),
        ("brax/halfcheetah", ""),
        ("navix/Navix-Empty-8x8-v0", ""),
    ],
)
def test_a_variant_says_where_it_plays_if_its_environment_has_twins(env: str, where: str) -> None:
    """Otherwise a study over several suites would have no variant in common, and nothing to compare."""
    run = {"env": env, "backend": "linen", "mode": "jit", "unit": "phase", "chunk": 10, "gradients": "framework"}
    assert Cell(run).variant == f"linen/jit/phase{where}"


def test_scaled_is_shorter_and_marked() -> None:
    short = scaled(PUBLISHED, 0.1)
    assert {cell.run["num_iterations"] for cell in short.cells} == {10}
    assert PUBLISHED.comparable
    assert not short.comparable
    assert short.id != PUBLISHED.id
    assert [row(short, i) for i in range(231)] == published_rows()
    assert {cell.run["num_iterations"] for cell in scaled(PUBLISHED, 0.001).cells} == {3}
    assert {cell.run["num_iterations"] for cell in scaled(one(num_iterations=2), 0.5).cells} == {2}


@pytest.mark.parametrize("factor", [0.5, 0.34, 0.1, 0.01])
def test_scaling_keeps_chunks_dividing(factor: float) -> None:
    runs = [{"unit": "chunk", "chunk": chunk} for chunk in (10, 60)] + [{"unit": "phase"}]
    study = Study("chunks", (Product({"variant": runs}, fixed={"num_iterations": 60}),))
    small, whole, phase = scaled(study, factor).cells
    assert small.run["num_iterations"] % small.run["chunk"] == 0
    assert small.run["chunk"] < whole.run["chunk"] == whole.run["num_iterations"] == phase.run["num_iterations"]
    assert len({cell.group for cell in (small, whole, phase)}) == 1


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5, float("nan")])
def test_wrong_scales_are_refused(factor: float) -> None:
    with pytest.raises(InputError, match=r"must be greater than 0 and at most 1"):
        scaled(PUBLISHED, factor)


def test_a_chunk_that_does_not_apply_tells_no_cells_apart() -> None:
    assert one(chunk=5).cells[0].id == one(chunk=7).cells[0].id


def one(**fixed: Any) -> Study:
    return Study("one", (Product({"backend": ["linen"]}, fixed=fixed),))


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"backend": "pytorch", "unit": "chunk"}, r"configuration 0 \(main, pytorch.*unit=chunk does not fit pytorch"),
        ({"env": "torch/CartPole-v1"}, r"configuration 0.*native to PyTorch"),
        ({"mode": "cudagraphs", "backend": "pytorch"}, "needs device=gpu and this is device=cpu"),
        ({"mode": "cached_partial"}, "mode of linen=cached_partial is unknown"),
        ({"mode": "eager", "unit": "chunk"}, "eager does not fit unit=chunk"),
        ({"unit": "chunk", "chunk": 7}, "does not divide"),
        ({"num_itertions": 3}, "did you mean num_iterations"),
        ({"num_iterations": "many"}, "must be of type int"),
        ({"timing": "asink"}, "known: async, sync"),
        ({"gradients": "reorderd"}, "did you mean reordered"),
        ({"gradients": "reordered", "backend": "pytorch"}, "does not fit pytorch.*use --gradients framework"),
        ({"threads": 0}, "at least 1"),
        ({"threads": "2"}, "whole number"),
        ({"device": "tpu"}, "device=tpu is unknown"),
        ({"division": "matched"}, "division is not a field"),
        ({"seed": 3}, "seed is not for a study to choose"),
        ({"published": {"framework": "\u202eevil"}}, r"U\+202E"),
        ({"published": "torch"}, "must be a mapping"),
    ],
)
def test_cells_that_cannot_run_are_refused_before_anything_runs(fixed: dict[str, Any], message: str) -> None:
    backend = [fixed.get("backend", "linen")]
    with pytest.raises(InputError, match=message) as refusal:
        Study("one", (Product({"backend": backend}, fixed={k: x for k, x in fixed.items() if k != "backend"}),))
    assert "\n" not in str(refusal.value)


PART = Product({"backend": ["linen", "nnx"]})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "../../x"}, "name='../../x' must be"),
        ({"name": ""}, "must be 1 to 64"),
        ({"name": "x" * 65}, "must be 1 to 64"),
        ({"name": "</script>"}, "must be"),
        ({"name": "=cmd()"}, "must be"),
        ({"name": "a\0b"}, r"name='a\\x00b' must be"),
        ({"name": "x\n"}, "must be"),
        ({"name": "y" * 10_000}, r"name='yyy.*\.\.\. must be"),
        ({"description": "\u202e"}, r"U\+202E"),
        ({"description": "x" * 2001}, "2001 characters; at most 2000"),
        ({"products": (Product({"backend": ["linen"]}, label="l" * 101),)}, "101 characters"),
        ({"products": (Product({"backend": ["linen"]}, label="\x1b[2J"),)}, r"U\+001B"),
        ({"products": ()}, "no configurations"),
        ({"products": (Product({"backend": [], "env": ["gymnax/CartPole-v1"]}),)}, "axis backend has no values"),
        ({"products": (replace(PART, devices=("gpu",)),)}, "no configurations on device=cpu"),
        ({"products": (replace(PART, devices=("tpu",)),)}, "devices of product 0=tpu is unknown"),
        ({"products": (PART, PART)}, r"configurations 0 and 2 \(main, linen/jit/phase\) are the same"),
        ({"products": (Product({"a": [1] * 101, "b": [1] * 100}),)}, "10100 configurations; at most 10000"),
        ({"min_blocks": 0}, "min_blocks=0 must be at least 1"),
        ({"max_blocks": 4}, "max_blocks=4 must be at least min_blocks=5"),
        ({"precision": 0.0}, "precision=0.0 must be greater than 0"),
        ({"precision": float("nan")}, "precision=nan"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"repeats": 0}, "repeats=0"),
        ({"only": (7,)}, "configurations 0 to 1"),
        ({"only": ()}, "configurations 0 to 1"),
    ],
)
def test_wrong_studies_name_the_remedy(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        Study(**({"name": "mine", "products": (PART,)} | fields))
    assert len(str(refusal.value)) < 400
    assert str(refusal.value).isprintable()


def test_the_same_cell_under_two_labels_is_measured_once() -> None:
    study = Study("two", (PART, replace(PART, label="again")))
    assert len(study.entries) == 4
    assert len(study.cells) == 2


def test_id_depends_on_what_is_measured_alone() -> None:
    study = Study("mine", (PART,))
    assert replace(study, description="other words", max_blocks=9, precision=0.5, timeout_s=9.0).id == study.id
    for change in ({"name": "other"}, {"order": "original"}, {"threads": 2}, {"only": (0,)}, {"aa": False}):
        assert replace(study, **change).id != study.id


YAML = """
name: mine
description: two backends, two sizes
min_blocks: 3
precision: 0.05
products:
  - label: sizes
    axes:
      model: [small, medium]
      variant:
        - {backend: linen}
        - {backend: pytorch, mode: none, published: {framework: torch}}
    fixed: {num_iterations: 20, timing: sync}
"""


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_yaml_has_the_same_fields(tmp_path: Path) -> None:
    study = load(written(tmp_path, YAML))
    assert (study.min_blocks, study.precision, study.max_blocks) == (3, 0.05, 30)
    found = [(e.cell.run["model"], e.cell.variant, e.cell.timing, dict(e.published)) for e in study.entries]
    torch = {"framework": "torch"}
    assert found == [
        ("small", "linen/jit/phase", "sync", {}),
        ("small", "pytorch/none/phase", "sync", torch),
        ("medium", "linen/jit/phase", "sync", {}),
        ("medium", "pytorch/none/phase", "sync", torch),
    ]
    assert load(written(tmp_path, yaml.safe_dump(study.to_dict()))).entries == study.entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (YAML.replace("min_blocks", "min_block"), "'min_block' is not a field of a study; did you mean min_blocks"),
        (YAML.replace("    axes", "    axis"), "'axis' is not a field of a product; did you mean axes"),
        (YAML + "name: other\n", "name is given twice"),
        (YAML.replace("min_blocks: 3", "min_blocks: three"), "min_blocks='three' must be of type int"),
        (YAML.replace("min_blocks: 3", "min_blocks: true"), "must be of type int"),
        (YAML.replace("name: mine\n", ""), "a study needs the field name"),
        (YAML.replace("[small, medium]", "small"), "axis 'model'='small' must be a list"),
        (YAML.replace("[small, medium]", "[]"), "axis model has no values"),
        (YAML.replace("[small, medium]", "[small, smal]"), "did you mean small"),
        (YAML.replace("[small, medium]", "[[small]]"), "must be of type str"),
        ("name: x\nproducts: []\n", "at least one product"),
        ("name: x\nproducts: [3]\n", "product=3 must be a mapping"),
        ("name: x\nproducts: [{label: x}]\n", "a product needs the field axes"),
        ("name: x\nproducts: [{axes: {1: [2]}}]\n", "every key must be the name of a field"),
        ("- 1\n", "must be a mapping of field names"),
        ("x: !!python/object/apply:os.system ['false']\n", "not plain YAML"),
        ("? [a]\n: 1\n", "not plain YAML"),
        ("x: 2001-99-99\n", "not plain YAML"),
        ("x: " + "[" * 20_000, "not plain YAML"),
        ("x: " + "y" * 40_000, "larger than 32768 bytes"),
        ("", "must be a mapping of field names"),
    ],
)
def test_wrong_yaml_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=message) as refusal:
        load(path)
    assert str(refusal.value).startswith(f"study {path}: ")
    assert str(refusal.value).count(str(path)) == 1
    assert "\n" not in str(refusal.value)


def test_names_that_do_not_exist_suggest_one_that_does(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="study='smok' is unknown; did you mean smoke"):
        load("smok")
    with pytest.raises(InputError, match=r"none.yaml: cannot be read \(No such file"):
        load(tmp_path / "none.yaml")
    for hostile in ("../../x", "__init__", "", "a\0b", "x" * 10_000, "\u202e"):
        with pytest.raises(InputError, match="is unknown") as refusal:
            load(hostile)
        assert str(refusal.value).isprintable()
        assert len(str(refusal.value)) < 400


def test_python_files_elsewhere_are_not_run(tmp_path: Path) -> None:
    path = written(tmp_path, "raise SystemExit('ran')", "mine.py")
    with pytest.raises(InputError, match="Python files are read from the package only"):
        load(path)


def test_reading_studies_imports_no_framework() -> None:
    code = """
import sys
from benchback.measure import machine, plan, study
for name in study.names():
    plan.estimate(study.load(name))
assert not {"jax", "torch", "flax", "gymnax"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cells_of_earlier_stores_reordered_their_gradients() -> None:
    run = {"algorithm": "ppo", "env": "gymnax/CartPole-v1", "mode": "jit", "unit": "chunk", "chunk": 10}
    linen, torch = (Cell(run | {"backend": name, "dtype": "float32"}) for name in ("linen", "pytorch"))
    assert linen.variant == "linen/jit/chunk(10)/reordered"
    assert linen.proof == "ppo/linen/jit/chunk/mlp/float32/reordered"
    assert torch.variant == "pytorch/jit/chunk(10)"
    now = Cell({**linen.run, "gradients": "framework"})
    assert (now.variant, now.group) == ("linen/jit/chunk(10)", linen.group)
    assert now.proof == "ppo/linen/jit/chunk/mlp/float32/framework"


def test_cells_of_earlier_stores_keep_their_ids() -> None:
    """The ids are those that earlier versions gave, which had a field `division`, and at first no kinds."""
    run = {"algorithm": "ppo", "env": "gymnax/CartPole-v1", "backend": "linen", "mode": "jit", "unit": "phase"}
    stored = {"run": run | {"chunk": 10, "num_envs": 4}, "timing": "async", "threads": 1, "device": "cpu"}
    stored |= {"twin": False, "division": "matched"}
    assert Cell.from_dict(stored).id == "da200a3ebea289f1"
    assert Cell.from_dict(stored).to_dict() == stored
    peer = Cell({"variant": "rejax", "env": "CartPole-v1"}, kind="peer")
    assert peer.id == "97c639e1c1b60804"
    assert Cell.from_dict(peer.to_dict()) == peer


def test_a_study_file_is_about_trainings(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML + "kind: operations\n")
    with pytest.raises(InputError, match="kind=operations has a verb of its own"):
        load(path)
    path.write_text(YAML.replace("fixed: {", "fixed: {kind: peer, ", 1))
    with pytest.raises(InputError, match="kind=peer has a verb of its own"):
        load(path)
