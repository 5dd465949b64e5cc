"""The comparison with peers: its arithmetic, its order, its manners when a peer fails. Nothing here is timed."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchback.errors import InputError
from benchback.measure import machine
from benchback.measure.peers import SIDES, WORKLOADS, Plan, campaign, compare, plan_for, schedule, summarise
from benchback.measure.peers.environments import Environment, Unavailable, is_complete
from benchback.measure.peers.process import Failed, checked, command_for, differences, measure, program_of
from benchback.measure.peers.sides import BASELINES, PROGRAMS, Side
from benchback.stats import geometric_mean, paired_ratio

WORK = WORKLOADS["A"]
CONFIG = {name: x for name, x in WORK.to_dict(0).items() if name != "seed"}


def outcome(steady_s: float = 2.0, **fields: Any) -> dict[str, Any]:
    figures = {"env_steps": 100, "steady_s": steady_s, "compile_s": 1.0, "peak_rss_bytes": 7, "episode_return": 20.0}
    return figures | {"config": CONFIG} | fields


def test_ratio_is_the_geometric_mean_of_paired_ratios() -> None:
    # By hand: log ratios log 2, log 2, log 4 -> mean (4/3) log 2, standard deviation log 2 / sqrt 3,
    # t(0.975, 2) = 4.302653, margin 4.302653 x log 2 / 3.
    found = paired_ratio([2.0, 4.0, 12.0], [1.0, 2.0, 3.0])
    assert found.ratio == pytest.approx(2 ** (4 / 3))
    assert found.low == pytest.approx(2 ** (4 / 3 - 4.302653 / 3), rel=1e-6)
    assert found.high == pytest.approx(2 ** (4 / 3 + 4.302653 / 3), rel=1e-6)
    assert found.blocks == 3


def test_drift_common_to_a_block_cancels() -> None:
    found = paired_ratio([3.0, 30.0, 300.0], [2.0, 20.0, 200.0])
    assert (found.ratio, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))


def test_one_block_gives_a_ratio_without_an_interval() -> None:
    found = paired_ratio([3.0], [2.0])
    assert found.ratio == pytest.approx(1.5)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_unpaired_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0, 2.0], [1.0])


def test_geometric_mean_of_one_and_four_is_two() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def names(plan: Plan, block: int, workload: str) -> list[str]:
    return [s.side.name for s in schedule(plan) if (s.block, s.work.name) == (block, workload)]


def test_every_block_has_every_side_once_and_the_next_reverses_it() -> None:
    plan = plan_for(blocks=4)
    for workload in WORKLOADS.values():
        able = {side.name for side in SIDES.values() if workload.env in side.envs}
        for block in range(4):
            order = names(plan, block, workload.name)
            assert len(order) == len(set(order))
            assert set(order) == able
        assert names(plan, 1, workload.name) == names(plan, 0, workload.name)[::-1]
        assert names(plan, 3, workload.name) == names(plan, 2, workload.name)[::-1]


def test_no_block_begins_before_the_one_before_has_ended() -> None:
    blocks = [slot.block for slot in schedule(plan_for(blocks=4))]
    assert blocks == sorted(blocks)


def test_schedule_is_a_function_of_the_seed() -> None:
    plan = plan_for(blocks=2)
    assert schedule(plan) == schedule(plan)
    assert any(schedule(plan) != schedule(replace(plan, seed=seed)) for seed in range(1, 4))


def test_quick_is_short() -> None:
    plan = plan_for(quick=True)
    assert [work.name for work in plan.works] == ["A"]
    assert plan.blocks == 2
    assert plan.works[0].config.num_iterations < WORK.config.num_iterations


@pytest.mark.parametrize("wrong", [{"blocks": 0}, {"threads": 0}, {"workloads": ["D"]}, {"sides": ["purejaks"]}])
def test_wrong_plans_name_the_remedy(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"must be at least 1|did you mean"):
        plan_for(**wrong)


def fake(name: str, code: str, monkeypatch: pytest.MonkeyPatch, folder: Path, **fields: Any) -> Side:
    """A side whose program is `code`."""
    monkeypatch.setattr("benchback.measure.peers.process.PROGRAMS", folder)
    (folder / f"{name}.py").write_text(code)
    return Side(name, f"{name}.py", **fields)


FAILURES = {
    "exits": ("import sys; print('why', file=sys.stderr); sys.exit(3)", "exit code 3: why"),
    "garbles": ("print('{garbage')", "printed no JSON"),
    "silent": ("", "printed no JSON"),
    "incomplete": ("print('{\"config\": {}}')", "env_steps=None"),
    "hangs": ("import threading; threading.Event().wait()", "not done after 5 s"),
}


def test_failing_sides_are_reported_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = fake("good", f"print({json.dumps(outcome())!r})", monkeypatch, tmp_path, own=True)
    bad = [fake(name, code, monkeypatch, tmp_path) for name, (code, _) in FAILURES.items()]
    sides = {side.name: side for side in (good, *bad)}
    rows = compare(Plan((WORK,), tuple(sides.values()), blocks=2, timeout_s=5.0), tmp_path / "rows.jsonl")
    lines = {line["side"]: line for line in summarise(rows, sides)}
    assert lines["good"]["blocks"] == 2
    assert lines["good"]["steps_per_s"] == pytest.approx(50.0)
    for name, (_, reason) in FAILURES.items():
        assert reason in lines[name]["error"]
        assert lines[name]["steps_per_s"] is None
        assert lines[name]["ratios"] == {}
        # Not tried again: a hang would cost its time limit in every block.
        assert sum(row["side"] == name for row in rows) == 1
    json.dumps(list(lines.values()), allow_nan=False)
    schedule_line, *written = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert written == rows
    assert len(schedule_line["schedule"]) == 2 * len(sides)


def test_a_program_that_cannot_be_started_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="cannot start"):
        measure([str(tmp_path / "none")], threads=1, timeout_s=5.0)


def test_a_side_that_cannot_be_installed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(environment: Environment) -> Path:
        raise Unavailable("cannot install x==1: no such version")

    monkeypatch.setattr(campaign, "prepare", refuse)
    good = fake("good", f"print({json.dumps(outcome())!r})", monkeypatch, tmp_path, own=True)
    missing = fake("missing", "", monkeypatch, tmp_path, environment=Environment("missing", (("x==1",),)))
    rows = compare(Plan((WORK,), (good, missing), blocks=1))
    lines = {line["side"]: line for line in summarise(rows, {"good": good, "missing": missing})}
    assert lines["missing"]["error"] == "unavailable: cannot install x==1: no such version"
    assert not lines["good"]["error"]


def test_a_side_that_does_other_work_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = json.dumps(outcome(config=CONFIG | {"num_epochs": 4}))
    rows = compare(Plan((WORK,), (fake("other", f"print({other!r})", monkeypatch, tmp_path),), blocks=1))
    assert rows[0]["error"] == "not the same work: num_epochs=4 instead of 10"


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists"):
        compare(plan_for(), tmp_path)


def test_summary_pairs_blocks_that_both_sides_finished() -> None:
    own, peer = Side("own", "", own=True), Side("peer", "")
    place = {"workload": "A", "error": ""}
    rows = [{**place, "side": "own", "block": b} | outcome(1.0) for b in range(3)]
    rows += [{**place, "side": "peer", "block": b} | outcome(2.0) for b in (0, 2)]
    line = next(line for line in summarise(rows, {"own": own, "peer": peer}) if line["side"] == "peer")
    assert line["ratios"]["own"]["ratio"] == pytest.approx(2.0)
    assert line["ratios"]["own"]["blocks"] == 2
    assert line["steps_per_s"] == pytest.approx(50.0)


@pytest.mark.parametrize("field", ["env_steps", "steady_s"])
@pytest.mark.parametrize("value", [0, -1, None, "1", True, math.nan])
def test_figures_that_are_no_speed_are_refused(field: str, value: Any) -> None:
    with pytest.raises(Failed):
        checked(json.dumps(outcome(**{field: value})))


def test_all_sides_are_told_the_same_work() -> None:
    told = {command_for(side, WORK, Path("python"), seed=3)[2] for side in SIDES.values()}
    assert told == {json.dumps(WORK.to_dict(3))}
    assert all(program_of(side).exists() for side in SIDES.values())


def program(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BASELINES))
    monkeypatch.syspath_prepend(str(PROGRAMS))
    return __import__(name)


def rejax_config(module: Any, work: SimpleNamespace) -> dict[str, Any]:
    """What rejax's program would report, were rejax to take its arguments as they are."""
    arguments = module.arguments(work)
    actor = SimpleNamespace(hidden_layer_sizes=arguments["agent_kwargs"]["hidden_layer_sizes"])
    return module.canonical(SimpleNamespace(**arguments, actor=actor), work)


def baselines_config(name: str) -> Callable[[Any, SimpleNamespace], dict[str, Any]]:
    def config(module: Any, work: SimpleNamespace) -> dict[str, Any]:
        arguments = module.arguments(work, name)
        towers = arguments["policy_kwargs"]["net_arch"]
        own = {"net_arch_pi": towers["pi"], "net_arch_vf": towers["vf"]} if name == "sbx" else {"net_arch": towers}
        policy = SimpleNamespace(optimizer_kwargs={"eps": 1e-5}, **own)
        clip = arguments["clip_range"]
        steps = work.num_iterations * work.num_envs * work.num_steps
        arguments |= {"clip_range": clip if name == "sbx" else lambda progress: clip}
        return module.canonical(
            SimpleNamespace(**arguments, policy=policy, n_envs=work.num_envs, num_timesteps=steps), work, name
        )

    return config


def own_config(name: str) -> Callable[[Any, SimpleNamespace], dict[str, Any]]:
    return lambda module, work: module.run_of(work, SIDES[name].options).to_dict() | {"env": work.env}


CONFIGS = {
    "rejax": rejax_config,
    "stable_baselines3": baselines_config("stable_baselines3"),
    "sbx": baselines_config("sbx"),
} | {name: own_config(name) for name, side in SIDES.items() if side.own}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("name", CONFIGS)
def test_each_sides_words_name_the_same_work(name: str, workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side, work = SIDES[name], WORKLOADS[workload].to_dict(0)
    module = program(side.program.removesuffix(".py"), monkeypatch)
    config = CONFIGS[name](module, SimpleNamespace(**work))
    assert differences(work, config, side.differs) == {}


def test_an_undeclared_difference_is_found() -> None:
    assert differences(CONFIG, CONFIG | {"gamma": 0.9}, {}) == {"gamma": (0.99, 0.9)}
    assert differences(CONFIG, CONFIG | {"clip_value": False}, {"clip_value": False}) == {}


def test_environments_live_in_the_cache_and_know_their_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHBACK_CACHE", str(tmp_path))
    assert machine.cache_folder("peers") == tmp_path / "peers"
    old, new = Environment("x", (("x==1",),)), Environment("x", (("x==2",),))
    assert not is_complete(old, tmp_path)
    (tmp_path / "complete.json").write_text(json.dumps(old.steps))
    assert is_complete(old, tmp_path)
    assert not is_complete(new, tmp_path)


@pytest.mark.parametrize("side", [s for s in SIDES.values() if s.environment], ids=lambda side: side.name)
def test_pins_are_exact_and_torch_comes_alone(side: Side) -> None:
    assert side.environment
    for packages in side.environment.steps:
        assert all("==" in package for package in packages)
        assert len(packages) == 1 or not any(package.startswith("torch==") for package in packages)


def test_programs_for_other_environments_do_not_import_benchback() -> None:
    for side in SIDES.values():
        if not side.own:
            text = program_of(side).read_text() + (PROGRAMS / "measuring.py").read_text()
            assert "import benchback" not in text
            assert "from benchback" not in text


def test_importing_the_package_imports_no_framework() -> None:
    code = "import sys, benchback.measure.peers; assert not {'jax', 'torch', 'flax', 'gymnax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
