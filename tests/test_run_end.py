"""What `benchback run` says at its end: noise, where the report is, and how to go on after it was stopped."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaign_double import FIXED, HOOKS, modelled
from test_campaign import Busy

from benchback import cli
from benchback.measure import coordinator
from benchback.measure.coordinator import Hooks
from benchback.measure.process import Ended
from benchback.measure.store import open_store

MINE = {
    "name": "mine",
    "products": [{"axes": {"backend": ["linen", "nnx"]}, "fixed": FIXED}],
    "min_blocks": 2,
    "max_blocks": 2,
    "aa": False,
}
RUNS = 4


@pytest.fixture
def ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Exit code, output and errors of `benchback run mine.yaml`, whose runs come from a model; stopped after `most`.

    A run takes `took_s` on the clock of the budget.
    """
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(MINE))
    monkeypatch.chdir(tmp_path)
    real = coordinator.work

    def run(
        *flags: str, busy: Busy | None = None, most: int = 10**6, failing: str = "", took_s: float = 0.0
    ) -> tuple[int, str, str]:
        launched: list[Any] = []

        def launch(*arguments: Any) -> Any:
            launched.append(arguments)
            if arguments[0].run["backend"] == failing:
                return Ended("signal", "ended by SIGSEGV")
            return (busy.launch if busy else modelled)(*arguments)

        def work(store: Any, study: Any, hooks: Hooks) -> bool:
            double = {"launch": launch, "sample": busy.sample if busy else HOOKS.sample, "canary": None}
            double["clock"] = lambda: took_s * len(launched)
            return real(store, study, replace(hooks, prove=HOOKS.prove, **double))

        monkeypatch.setattr(coordinator, "work", work)
        monkeypatch.setattr("benchback.cli.running.on_stop", lambda: lambda: len(launched) >= most)
        monkeypatch.setattr(sys, "argv", ["benchback", "run", "mine.yaml", *flags])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def test_a_quiet_campaign_names_its_report(ended: Callable[..., tuple[int, str, str]]) -> None:
    code, printed, _ = ended()
    assert code == 0
    assert "no run was repeated for noise" in printed
    assert "benchback doctor" not in printed
    assert printed.splitlines()[-1] == "the whole report: benchback report runs/mine.sqlite"


REMEDY = "what to change for less noise: benchback doctor"


@pytest.mark.parametrize(
    ("noisy", "words"),
    [
        (1, f"{RUNS} runs repeated for noise\n{REMEDY}"),
        (9, f"{2 * RUNS} runs repeated for noise, {RUNS} results stayed noisy\n{REMEDY}"),
    ],
)
def test_runs_repeated_for_noise_are_counted(
    noisy: int, words: str, ended: Callable[..., tuple[int, str, str]]
) -> None:
    code, printed, _ = ended(busy=Busy(noisy))
    assert code == 0
    assert f"\n{words}\n" in printed


def test_json_counts_the_repeated_runs_too(ended: Callable[..., tuple[int, str, str]]) -> None:
    _, printed, _ = ended("--json", busy=Busy(1))
    events = [json.loads(line) for line in printed.splitlines()]
    assert {"event": "noise", "repeated": RUNS, "noisy": 0} in events
    assert events[-1]["event"] == "outcome"


def test_a_stopped_campaign_says_how_to_go_on_and_does(ended: Callable[..., tuple[int, str, str]]) -> None:
    for most, done in ((1, 1), (2, 3)):
        code, printed, said = ended(most=most)
        assert code == 130
        words = f"stopped; {done} of {RUNS} runs are done and kept: run the same command again to go on"
        assert said.splitlines()[-1] == f"benchback: {words}"
        assert "report" not in printed
    code, printed, _ = ended()
    assert code == 0
    with open_store(Path("runs/mine.sqlite"), readonly=True) as store:
        assert [attempt.number for attempt in store.attempts()] == [0] * RUNS


def test_a_campaign_whose_time_is_used_up_says_how_to_go_on_and_does(
    ended: Callable[..., tuple[int, str, str]],
) -> None:
    code, printed, _ = ended("--budget", "1m", took_s=50.0)
    assert code == 0
    with open_store(Path("runs/mine.sqlite"), readonly=True) as store:
        done = len(list(store.attempts()))
    assert 0 < done < RUNS
    assert f"\n{done} of {RUNS} runs are done: run the same command again to go on\n" in printed
    code, printed, _ = ended()
    assert code == 0
    assert "run the same command again" not in printed


@pytest.mark.parametrize(("failing", "code"), [("", 0), ("nnx", 3)])
def test_a_campaign_with_failed_runs_is_told_by_its_exit_code(
    failing: str, code: int, ended: Callable[..., tuple[int, str, str]]
) -> None:
    found, printed, _ = ended(failing=failing)
    assert found == code
    assert ("benchback list-runs" in printed) == bool(failing)
    assert "no run was repeated for noise" in printed
