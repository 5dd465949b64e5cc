"""The comparison with peers: its arithmetic, its order, its manners when a peer fails. Nothing here is timed."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from campaign_double import MACHINE, quiet

from benchback import envs
from benchback.agent import start
from benchback.cli import reporting
from benchback.errors import InputError
from benchback.measure import caches, coordinator
from benchback.measure.coordinator import Hooks, open_campaign
from benchback.measure.flops import work_ledger
from benchback.measure.peers import SIDES, WORKLOADS, launch, rows, study_for, summarise
from benchback.measure.peers.demand import layers
from benchback.measure.peers.environments import Environment, Unavailable, install, is_complete
from benchback.measure.peers.launch import differences, parse_outcome, program_of
from benchback.measure.peers.sides import BASELINES, PROGRAMS, Side
from benchback.measure.peers.summary import shares
from benchback.measure.peers.targets import FAMILIES, TARGETS, Target, reached
from benchback.measure.peers.work import TASKS, Task, Workload, told
from benchback.measure.results import open_trainings
from benchback.measure.store import open_store
from benchback.measure.verify import verify
from benchback.measure.wire import Garbled, Reader
from benchback.report import peers as report
from benchback.stats import geometric_mean, paired_ratio
from benchback.training import advance
from benchback.training.run import build

WORK = WORKLOADS["A"]
CONFIG = WORK.to_dict()


def outcome(steady_s: float = 2.0, **fields: Any) -> dict[str, Any]:
    figures = {"env_steps": 100.0, "steady_s": steady_s, "compile_s": 1.0, "episode_return": 20.0}
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


def test_a_comparison_is_a_study_with_a_group_for_each_workload() -> None:
    study = study_for(blocks=4)
    groups = {(cell.group, cell.run["workload"]) for cell in study.cells}
    assert sorted(name for _, name in groups) == sorted(WORKLOADS)
    for work in WORKLOADS.values():
        mine = [cell.variant for cell in study.cells if cell.run["workload"] == work.name]
        assert mine == [side.name for side in SIDES.values() if side.does(work)]
        own = [name for name in mine if SIDES[name].own]
        assert own, "ratios are benchback's over the others"
        assert len(mine) >= len(own) + 2
    assert {cell.kind for cell in study.cells} == {"peer"}
    assert (study.min_blocks, study.max_blocks, study.aa) == (4, 4, False)


def test_quick_is_short() -> None:
    study = study_for(quick=True)
    assert {cell.run["workload"] for cell in study.cells} == {"A"}
    assert study.min_blocks == 2
    assert {cell.run["num_iterations"] for cell in study.cells} == {8}
    (learning,) = {cell.run["num_iterations"] for cell in study_for(quick=True, workloads=["D"]).cells}
    assert learning > WORKLOADS["D"].config.iterations_before_learning


@pytest.mark.parametrize("wrong", [{"blocks": 0}, {"threads": 0}, {"workloads": ["Z"]}, {"sides": ["purejaks"]}])
def test_wrong_choices_name_the_remedy(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"must be (a whole number of )?at least 1|did you mean|known: A, B, C"):
        study_for(**wrong)


SENDING = "from measuring import main\nmain(lambda work, options: {outcome!r})"
FAILURES = {
    "exits": ("import sys; print('why', file=sys.stderr); sys.exit(3)", "exit code 3: why"),
    "prints": ("print('{}')", "the worker ended without sending its record"),
    "garbles": ("import os, sys; os.write(int(sys.argv[1]), b'garbage')", "is not the beginning of a message"),
    "incomplete": (SENDING.format(outcome={"config": CONFIG}), "env_steps of a peer must be a number"),
    "other": (
        SENDING.format(outcome=outcome(config=CONFIG | {"num_epochs": 4})),
        "not the same work: num_epochs=4 instead of 10",
    ),
}
HANGS = "import pathlib, sys, threading; pathlib.Path({ready!r}).touch(); threading.Event().wait()"


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Side]:
    """Adds a side whose program is `code`; an outcome that is printed is what it measured. The machine is not timed."""
    monkeypatch.setattr(launch, "demand_of", lambda side, cell: {})

    def add(name: str, code: str = SENDING.format(outcome=outcome()), **fields: Any) -> Side:
        program = tmp_path / f"{name}.py"
        program.write_text(code)
        added = Side(name, str(program), **fields)
        monkeypatch.setitem(SIDES, name, added)
        return added

    return add


def compared(path: Path, sides: list[str], hooks: Hooks | None = None, **choice: Any) -> list[dict[str, Any]]:
    """The rows of a comparison on workload A, after as much of it as was run."""
    chosen = study_for(workloads=["A"], sides=sides, **choice)
    with open_campaign(path, chosen, fingerprint=MACHINE) as store:
        quick = hooks or Hooks(prove=None, sample=quiet, canary=None)
        assert coordinator.work(store, chosen, quick) != quick.asked_to_stop()
        return rows(store)


def test_failing_sides_are_reported_and_the_others_go_on(tmp_path: Path, side: Callable[..., Side]) -> None:
    side("good", own=True)
    for name, (code, _) in FAILURES.items():
        side(name, code)
    path = tmp_path / "peers.sqlite"
    found = compared(path, ["good", *FAILURES], blocks=2)
    lines = {line["side"]: line for line in summarise(found)}
    assert lines["good"]["blocks"] == 2
    assert lines["good"]["steps_per_s"] == pytest.approx(50.0)
    for name, (_, reason) in FAILURES.items():
        assert reason in lines[name]["error"]
        assert lines[name]["steps_per_s"] is None
        assert lines[name]["ratios"] == {}
    json.dumps(list(lines.values()), allow_nan=False)
    assert verify(path) == []


def test_a_store_of_peers_is_reported_by_its_tables(
    tmp_path: Path, side: Callable[..., Side], capsys: pytest.CaptureFixture[str]
) -> None:
    side("good", own=True)
    found = compared(tmp_path / "peers.sqlite", ["good"], blocks=1)
    assert reporting.report([str(tmp_path / "peers.sqlite"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(summarise(found)))
    made = (tmp_path / "peers-report" / "index.html").read_text()
    assert "A: PPO on CartPole-v1" in made
    assert "env steps/s" in made


TARGET = Target("A", "JAX", "slow", 1.5)


@pytest.mark.parametrize(
    ("steady_s", "product_s", "verdict"), [(1.0, 0.1, "met"), (1.8, 1.7, "at the limit"), (1.8, 0.5, "not met")]
)
def test_a_target_is_met_by_ratio_or_at_the_limit(steady_s: float, product_s: float, verdict: str) -> None:
    # An iteration of 32 x 256 steps each, of which products and environment take a share; the peer takes 2 s.
    sides = {"purejax": Side("purejax", "", own=True), "slow": Side("slow", "")}
    machine = {"iteration_flops": 1.0, "product_s": product_s, "iteration_bytes": 1.0, "copy_bytes_per_s": 1.0}
    times = {"purejax": steady_s, "slow": 2.0}
    rows = [
        {"workload": "A", "error": "", "side": name, "block": 0, "peak_rss_bytes": 7, "env_step_s": 0.0}
        | machine
        | outcome(times[name], env_steps=32 * 256)
        for name in sides
    ]
    (found,) = reached(summarise(rows, sides), [TARGET])
    assert found.verdict == verdict
    assert found.ratio["ratio"] == pytest.approx(2 / steady_s)
    assert report.verdict([found]).startswith("Of 1 targets")


def test_a_page_shows_what_failed_and_escapes_it() -> None:
    sides = {"purejax": Side("purejax", "", own=True), "slow": Side("slow", "", note="<script>")}
    rows = [{"workload": "A", "error": "", "side": "purejax", "block": 0, "peak_rss_bytes": 7} | outcome()]
    rows.append({"workload": "A", "side": "slow", "block": 0, "error": "exit code 3: <b>"})
    made = report.page(summarise(rows, sides), "provenance")
    assert "exit code 3: &lt;b&gt;" in made
    assert "<script>" not in made


def test_every_target_names_sides_that_do_its_work() -> None:
    for target in TARGETS:
        work = WORKLOADS[target.workload]
        assert SIDES[target.peer].does(work)
        assert any(SIDES[side].does(work) for side in FAMILIES[target.family])


def test_a_store_of_peers_is_not_compared_as_trainings(tmp_path: Path, side: Callable[..., Side]) -> None:
    side("good", own=True)
    compared(tmp_path / "peers.sqlite", ["good"], blocks=1)
    with pytest.raises(InputError, match="kind peer and reports are about trainings"):
        open_trainings(tmp_path / "peers.sqlite")


def test_a_side_that_fails_twice_is_not_run_again(tmp_path: Path, side: Callable[..., Side]) -> None:
    runs = tmp_path / "runs"
    side("fails", f"open({str(runs)!r}, 'a').write('x'); raise ValueError")
    (line,) = summarise(compared(tmp_path / "peers.sqlite", ["fails"], blocks=3))
    assert runs.read_text() == "xx", "a hang would cost its time limit in every block"
    assert line["error"].startswith("exit code 1: ValueError")


def test_a_comparison_that_is_stopped_continues_where_it_was(tmp_path: Path, side: Callable[..., Side]) -> None:
    side("good", own=True)
    ready = tmp_path / "ready"
    side("hangs", HANGS.format(ready=str(ready)))
    path = tmp_path / "peers.sqlite"
    hooks = Hooks(prove=None, sample=quiet, canary=None, asked_to_stop=ready.exists)
    before = compared(path, ["good", "hangs"], hooks, blocks=2)
    assert {row["side"] for row in before} <= {"good"}
    side("hangs")
    after = compared(path, ["good", "hangs"], blocks=2)
    assert [row["error"] for row in after] == [""] * 4
    assert before == [row for row in after if row in before]
    assert len(compared(path, ["good", "hangs"], blocks=3)) == 6, "more blocks go on where fewer ended"
    assert verify(path) == []
    with open_store(path, readonly=True) as store:
        assert {attempt.number for attempt in store.attempts()} == {0}


def test_a_side_that_cannot_be_installed_is_reported(
    tmp_path: Path, side: Callable[..., Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(environment: Environment, tick: Any) -> Path:
        asked.append(environment)
        raise Unavailable("cannot install x==1: no such version")

    monkeypatch.setattr(launch, "prepare", refuse)
    side("good", own=True)
    side("missing", environment=Environment("missing", (("x==1",),)))
    lines = {line["side"]: line for line in summarise(compared(tmp_path / "s.sqlite", ["good", "missing"], blocks=1))}
    assert lines["missing"]["error"] == "unavailable: cannot install x==1: no such version"
    assert not lines["good"]["error"]
    assert len(asked) == 1


def test_a_python_that_is_gone_makes_its_side_unavailable(
    tmp_path: Path, side: Callable[..., Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "prepare", lambda environment, tick: tmp_path / "bin" / "python")
    side("gone", environment=Environment("gone", (("x==1",),)))
    (line,) = summarise(compared(tmp_path / "s.sqlite", ["gone"], blocks=1))
    assert "unavailable" in line["error"]
    assert "have it made anew" in line["error"]


def test_what_pip_cannot_install_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"cannot install --no-index ./none: ERROR"):
        install(Path(sys.executable), ("--no-index", "./none"), lambda: True)


def test_programs_speak_as_the_coordinator_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = program("measuring", monkeypatch)
    message = {"kind": "record", "record": {"samples": {"a": [1.5, None]}}}
    assert list(Reader().feed(measuring.frame(message))) == [message]


def test_what_comes_before_learning_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    # By hand: 40 steps of 4 environments are 10 iterations before learning, and 2 more are warm-up. The moment of
    # iteration 12 is that of its step of the environment: 7 iterations of 0.5 s follow, of 4 environment steps each.
    measuring = program("measuring", monkeypatch)
    work = SimpleNamespace(num_envs=4, num_steps=1, num_iterations=20, learning_starts=40)
    moments = [100 + 0.1 * i for i in range(12)] + [107 + 0.5 * i for i in range(8)]
    found = measuring.time_between(100.0, moments, work)
    assert found == pytest.approx({"env_steps": 28, "steady_s": 3.5, "compile_s": 7 - 12 * 0.5})
    asked: list[int] = []
    assert measuring.time_after_warm_up(asked.append, work)["env_steps"] == 32
    assert asked == [12, 8]


def test_summary_pairs_blocks_that_both_sides_finished() -> None:
    own, peer = Side("own", "", own=True), Side("peer", "")
    place = {"workload": "A", "error": ""}
    rows = [{**place, "side": "own", "block": b, "peak_rss_bytes": 7} | outcome(1.0) for b in range(3)]
    rows += [{**place, "side": "peer", "block": b, "peak_rss_bytes": 7} | outcome(2.0) for b in (0, 2)]
    line = next(line for line in summarise(rows, {"own": own, "peer": peer}) if line["side"] == "peer")
    assert line["ratios"]["own"]["ratio"] == pytest.approx(2.0)
    assert line["ratios"]["own"]["blocks"] == 2
    assert line["steps_per_s"] == pytest.approx(50.0)


def record(**samples: Any) -> dict[str, Any]:
    figures = {name: [x] for name, x in (outcome() | samples).items() if name != "config"}
    return {"samples": figures, "marks": {}, "ledger": {"config": CONFIG}, "memory": {"peak_rss_bytes": 7.0}}


@pytest.mark.parametrize("field", ["env_steps", "steady_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, None, "1", True])
def test_figures_that_are_no_speed_are_refused(field: str, value: Any) -> None:
    parse_outcome(record())
    with pytest.raises(Garbled):
        parse_outcome(record(**{field: value}))


def test_all_sides_are_told_the_same_work() -> None:
    for work in WORKLOADS.values():
        cells = study_for(workloads=[work.name]).cells
        assert len(cells) == sum(side.does(work) for side in SIDES.values())
        assert all(told(cell, 3) == work.to_dict() | {"seed": 3} for cell in cells)
    assert all(program_of(side).exists() for side in SIDES.values())


def program(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BASELINES))
    monkeypatch.syspath_prepend(str(PROGRAMS))
    return __import__(name)


def brax_config(module: Any, work: SimpleNamespace) -> dict[str, Any]:
    """What Brax's program would report of networks with the layers that were asked for."""
    sizes = [4, *work.hidden_sizes, 1]
    layers = {f"hidden_{i}": {"kernel": np.zeros((a, b))} for i, (a, b) in enumerate(pairwise(sizes))}
    steps = work.num_iterations * work.num_envs * work.num_steps
    return module.canonical(module.arguments(work), (None, layers, layers), steps, work)


def rejax_config(module: Any, work: SimpleNamespace) -> dict[str, Any]:
    """What rejax's program would report, were rejax to take its arguments as they are."""
    arguments = module.arguments(work)
    actor = SimpleNamespace(hidden_layer_sizes=tuple(work.hidden_sizes))
    networks = {"actor": actor, "critic": actor, "agent": actor, "num_critics": 2}
    return module.canonical(SimpleNamespace(**arguments, **networks), work)


def baselines_config(name: str) -> Callable[[Any, SimpleNamespace], dict[str, Any]]:
    def config(module: Any, work: SimpleNamespace) -> dict[str, Any]:
        arguments = module.arguments(work, name)
        towers = arguments["policy_kwargs"]["net_arch"]
        own = {"net_arch_pi": towers["pi"], "net_arch_vf": towers["vf"]} if name == "sbx" else {"net_arch": towers}
        own |= {"lstm_actor": type("LSTM", (), {})()} if name == "sb3_contrib" else {}
        policy = SimpleNamespace(optimizer_kwargs={"eps": 1e-5}, **own)
        clip = arguments["clip_range"]
        steps = work.num_iterations * work.num_envs * work.num_steps
        arguments |= {"clip_range": clip if name == "sbx" else lambda progress: clip}
        return module.canonical(
            SimpleNamespace(**arguments, policy=policy, n_envs=work.num_envs, num_timesteps=steps), work, name
        )

    return config


def off_policy_config(name: str) -> Callable[[Any, SimpleNamespace], dict[str, Any]]:
    def config(module: Any, work: SimpleNamespace) -> dict[str, Any]:
        arguments = module.arguments(work, name)
        steps = work.num_iterations * work.num_envs * work.num_steps
        made = SimpleNamespace(**arguments)
        made.train_freq, made.num_timesteps = SimpleNamespace(frequency=arguments["train_freq"]), steps
        sizes = arguments["policy_kwargs"]["net_arch"]
        shape: dict[str, Any] = {"net_arch": sizes}
        if name == "sbx":
            shape = {"n_units": sizes[0]} if work.algorithm == "dqn" else {"net_arch_pi": sizes, "net_arch_qf": sizes}
        made.n_envs, made.policy = work.num_envs, SimpleNamespace(optimizer_kwargs={}, **shape)
        if work.algorithm == "td3":
            made.action_noise = SimpleNamespace(_sigma=[work.exploration_noise])
        elif name == "sbx":
            made.target_update_interval //= work.num_envs
        return module.canonical(made, work, name)

    return config


def own_config(name: str) -> Callable[[Any, SimpleNamespace], dict[str, Any]]:
    return lambda module, work: module.run_of(work, SIDES[name].options).to_dict() | {"env": work.env}


CONFIGS = {
    "rejax": rejax_config,
    "stable_baselines3": baselines_config("stable_baselines3"),
    "sbx": baselines_config("sbx"),
    "sb3_contrib": baselines_config("sb3_contrib"),
    "brax_ppo": brax_config,
    "rejax_dqn": rejax_config,
    "rejax_td3": rejax_config,
    "stable_baselines3_dqn": off_policy_config("stable_baselines3"),
    "stable_baselines3_td3": off_policy_config("stable_baselines3"),
    "sbx_dqn": off_policy_config("sbx"),
    "sbx_td3": off_policy_config("sbx"),
} | {name: own_config(name) for name, side in SIDES.items() if side.own}


@pytest.mark.parametrize(
    ("name", "workload"),
    [(x, w.name) for x in CONFIGS for w in WORKLOADS.values() if SIDES[x].does(w)],
)
def test_each_sides_words_name_the_same_work(name: str, workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side, work = SIDES[name], WORKLOADS[workload].to_dict() | {"seed": 0}
    module = program(side.program.removesuffix(".py"), monkeypatch)
    config = CONFIGS[name](module, SimpleNamespace(**work))
    many = {"agents": work["agents"]} if side.own and "agents" in work else {}
    assert differences(work, config | many, side.differs) == {}


def off_policy_work(name: str, **fields: Any) -> SimpleNamespace:
    """A short training of the workload."""
    return SimpleNamespace(**(WORKLOADS[name].to_dict() | {"seed": 0} | fields))


SHORT_DQN = {"num_iterations": 12, "learning_starts": 45, "replay_capacity": 60, "minibatch_size": 4}
SHORT_TD3 = {"num_iterations": 12, "start_steps": 5, "update_after": 5, "replay_capacity": 60, "minibatch_size": 4}


@pytest.mark.parametrize(
    ("name", "short", "counts"), [("D", SHORT_DQN, 8), pytest.param("E", SHORT_TD3, 8, marks=pytest.mark.slow)]
)
def test_the_gradient_steps_asked_of_peers_are_those_of_our_own_training(
    name: str, short: dict[str, Any], counts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By hand: 45 steps are there after the fifth iteration of ten environments; 5 after the fifth of one.
    work = off_policy_work(name, **short)
    run = program("own", monkeypatch).run_of(work, SIDES["purejax"].options)
    agent, _ = build(run)
    state, _ = advance(agent, start(agent, 0))
    count = state.adam_count if name == "D" else state.critic_adam_count
    assert program("measuring", monkeypatch).gradient_steps(work) == int(count) == counts


@pytest.mark.parametrize(("late", "fine"), [(-1, False), (0, True), (2, True), (3, False)])
def test_a_training_with_other_gradient_steps_is_refused(
    late: int, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = off_policy_work("D", num_updates=4)
    measuring = program("measuring", monkeypatch)
    done = measuring.gradient_steps(work) - late * work.num_updates
    with nullcontext() if fine else pytest.raises(ValueError, match="gradient steps instead of"):
        measuring.check_gradient_steps(done, work)


def installed(name: str) -> Path:
    """Python of a side's own virtual environment, where a comparison has made it; it takes minutes to install."""
    environment = SIDES[name].environment
    assert environment
    folder = caches.cache_folder("peers") / environment.name
    if not is_complete(environment, folder):
        pytest.skip(f"{folder} is not installed; benchback peers --sides {name} does")
    return folder / "bin" / "python"


OFF_POLICY = [name for name, side in SIDES.items() if side.environment and {"dqn", "td3"} & {*side.algorithms}]
CHECKED = """
import json, sys
from types import SimpleNamespace
import baselines_off_policy as program
work, module = SimpleNamespace(**json.loads(sys.argv[1])), sys.argv[2]
program.measure(work, {"module": module})
if work.algorithm == "dqn" and module == "sbx":
    import optax
    print(float(optax.huber_loss(3.0, 0.0)))
elif work.algorithm == "dqn":
    import torch
    print(float(torch.nn.functional.smooth_l1_loss(torch.tensor(3.0), torch.tensor(0.0))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", OFF_POLICY)
def test_a_real_library_trains_as_it_is_told(name: str) -> None:
    """Gradient steps, replay and exploration as the library itself counts them: its program refuses others."""
    side, python = SIDES[name], installed(name)
    work = next(work for work in WORKLOADS.values() if side.does(work)).with_iterations(300)
    cell = study_for(workloads=[work.name], sides=[name]).cells[0]
    short = replace(cell, run={**cell.run, **work.to_dict()})
    ended = launch.run_peer(side, short, 0, python, 240.0, lambda: True)
    assert (ended.outcome, ended.detail) == ("ok", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stable_baselines3_dqn", "sbx_dqn"])
def test_the_libraries_dqn_minimises_the_squared_error(name: str) -> None:
    work = json.dumps(WORKLOADS["D"].with_iterations(150).to_dict() | {"seed": 0})
    command = [str(installed(name)), "-c", CHECKED, work, SIDES[name].options["module"]]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(PROGRAMS)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == 9.0, "Huber's loss of an error of 3 is 2.5"


WRONG = {
    "steps": ({"_n_updates": 7}, "7 gradient steps"),
    "replay": ({"replay_buffer": SimpleNamespace(buffer_size=999)}, "9990 transitions instead of 10000"),
    "epsilon": ({"exploration_rate": 1.0}, r"epsilon 1.0 instead of 0.05"),
    "schedule": ({"exploration_schedule": lambda remaining: 0.05}, r"epsilon 0.05 instead of 0.525"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_library_that_did_something_else_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, work = program("baselines_off_policy", monkeypatch), off_policy_work("D")
    fields, message = WRONG[wrong]
    right = {
        "n_envs": 10,
        "_n_updates": 9900,
        "replay_buffer": SimpleNamespace(buffer_size=1000),
        "exploration_rate": 0.05,
        "exploration_schedule": lambda remaining: max(0.05, 1 - (1 - remaining) / 0.5 * 0.95),
    }
    module.check(SimpleNamespace(**right), work)
    with pytest.raises(ValueError, match=message):
        module.check(SimpleNamespace(**(right | fields)), work)


def test_an_undeclared_difference_is_found() -> None:
    assert differences(CONFIG, CONFIG | {"gamma": 0.9}, {}) == {"gamma": (0.99, 0.9)}
    assert differences(CONFIG, CONFIG | {"clip_value": False}, {"clip_value": False}) == {}


def test_environments_live_in_the_cache_and_know_their_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHBACK_CACHE", str(tmp_path))
    assert caches.cache_folder("peers") == tmp_path / "peers"
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


def test_products_of_a_gradient_step_by_hand() -> None:
    # DQN on 10 environments: to act, one product a layer of 10 rows. A gradient step on 128 rows: values of the next
    # observation, values of this one, gradients of three kernels and of the inputs of two layers.
    layers = [(4, 120), (120, 84), (84, 2)]
    found = WORKLOADS["D"].demand()
    expected = [[1, 10, i, o] for i, o in layers]
    expected += [[1, 128, i, o] for i, o in layers] * 2 + [[1, i, 128, o] for i, o in layers]
    expected += [[1, 128, o, i] for i, o in layers[1:]]
    assert sorted(found["products"]) == sorted(expected)
    assert found["flops"] == sum(2 * m * k * n for _, m, k, n in expected)


@pytest.mark.parametrize("work", [w for w in WORKLOADS.values() if w.agents == 1], ids=lambda work: work.name)
def test_products_are_those_of_the_ledger(work: Workload) -> None:
    sizes = dict(layers(work.config, work.task.observation_size, work.task.action_size))
    if memory := sizes.pop("memory", None):
        sizes["gru"] = [*sizes["gru"], *memory]
    ledger = work_ledger(work.config.network_rows, sizes, skips=True)
    found = work.demand()["flops"]
    total = ledger["forward_flops"] + ledger["gradient_flops"]
    # The ledger counts two products of the memory's kernel for a rollout's last value; acting has it already.
    assert found == pytest.approx(total, rel=0.01 if memory else 1e-12)


def test_a_population_asks_for_as_much_as_its_members() -> None:
    one, many = WORKLOADS["B"].demand(), WORKLOADS["I"].demand()
    assert many["products"] == one["products"]
    assert (many["flops"], many["bytes"]) == (32 * one["flops"], 32 * one["bytes"])


# Brax takes seconds to import.
SLOW = {"reacher": [pytest.mark.slow]}


@pytest.mark.parametrize("task", [pytest.param(x, marks=SLOW.get(x.name, []), id=x.name) for x in TASKS.values()])
def test_tasks_have_the_sizes_of_their_environments(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    env = envs.make(program("own", monkeypatch).env_id(task.name, "gymnax"), 1, "jax")
    assert (env.observation_size, env.actions.size) == (task.observation_size, task.action_size)
    assert (env.actions.kind == "box") == task.real


def test_shares_of_a_run_by_hand() -> None:
    # 4 environments x 8 steps: 320 steps are 10 iterations, of 0.1 s. Products alone take 0.03 s of one, 8 steps of the
    # environment 0.04 s, and 2e7 bytes at 1e9 a second 0.02 s.
    config = {"num_envs": 4, "num_steps": 8}
    machine = {"iteration_flops": 6e6, "product_s": 0.03, "iteration_bytes": 2e7, "copy_bytes_per_s": 1e9}
    row = {"env_steps": 320, "steady_s": 1.0, "config": config, "env_step_s": 0.005} | machine
    expected = {"flops_per_s": 6e7, "products": 0.3, "bandwidth": 0.2, "env": 0.4, "limit": 0.7}
    assert shares(row) == pytest.approx(expected)
    many = row | {"env_steps": 640, "config": config | {"agents": 2}}
    assert shares(many) == pytest.approx(expected), "the same iterations, of two agents each"
    assert shares({name: row[name] for name in ("env_steps", "steady_s", "config")}) == {}


def test_the_machine_is_timed_by_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = program("limits", monkeypatch)
    assert limits.of_machine({}) == {}
    monkeypatch.setattr(
        limits, "product_s", lambda rows, inputs, outputs, budget_s, agents: agents * rows * inputs * outputs
    )
    monkeypatch.setattr(limits, "copy_bytes_per_s", lambda: 5.0)
    products = [[2, 1, 2, 3], [0.5, 1, 2, 3], [1, 2, 2, 2]]
    found = limits.of_machine({"products": products, "flops": 7, "bytes": 9, "agents": 4})
    assert found["product_s"] == 4 * (2.5 * 6 + 8)
    assert found["copy_bytes_per_s"] == 5.0


def test_importing_the_package_imports_no_framework() -> None:
    code = "import sys, benchback.measure.peers; assert not {'jax', 'torch', 'flax', 'gymnax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_time_that_others_had_the_processor_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    # By hand: of 10 s it ran for 6; its threads queued for 3 s in one case, in the other two of them for 3 s each.
    measuring = program("measuring", monkeypatch)
    for queued_s, waited_s in ((3.0, 3.0), (6.0, 4.0)):
        clocks = {"perf_counter": iter((100.0, 110.0)), "process_time": iter((1.0, 7.0))}
        queues = iter((50.0, 50.0 + queued_s))
        with monkeypatch.context() as patched:
            patched.setattr(measuring, "queueing_s", lambda queues=queues: next(queues))
            patched.setattr(measuring, "time", SimpleNamespace(**{k: lambda v=v: next(v) for k, v in clocks.items()}))
            assert measuring.without_others(lambda: "done") == ({"steady_s": 10.0, "waited_s": waited_s}, "done")
