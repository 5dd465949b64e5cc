"""Slow-downs of the working tree: both versions in relays, a verdict that neither misses 3 % nor cries wolf."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from campaign_double import study
from relay_double import give, log

from benchback.cli import regressing
from benchback.errors import InputError
from benchback.measure.process import Ended
from benchback.measure.record import Cell
from benchback.measure.relay import Pace, Relay, relay_launch
from benchback.measure.trees import trees, worker_command
from benchback.measure.worker import Job
from benchback.tools import regress
from benchback.tools.regress import FEWEST_RELAYS, Found, Hooks, Search, cells_of

CELLS = list(study(("linen", "nnx", "equinox"), [0.9]).cells)
RELAY_S = 10.0


def test_a_worker_of_older_code_is_told_nothing_it_does_not_know() -> None:
    """`vary`, `members` and `kind` came later than the first cells, which an older tree has to run all the same."""
    told = Job(CELLS[0], 1, 0.0).to_dict()
    assert not {"vary", "members", "kind"} & told["cell"].keys()
    assert Job.from_dict(json.loads(json.dumps(told))) == Job(CELLS[0], 1, 0.0)


class Machine:
    """Relays that take ten seconds of a clock of their own; between relays a ratio varies by 0.8 %."""

    def __init__(self, seed: int, slower: dict[str, float]) -> None:
        self.seed, self.slower, self.now_s = seed, slower, 0.0
        self.ran: list[str] = []

    def run_pair(self, order: Sequence[Cell], seed: int) -> dict[str, Ended]:
        self.now_s += RELAY_S
        (now,) = (cell for cell in order if not cell.twin)
        self.ran.append(now.run["backend"])
        noise = random.Random(f"{self.seed} {seed}").lognormvariate(0, 0.008)
        call_s = 0.01 * noise * self.slower.get(now.run["backend"], 1.0)
        return {cell.id: ended(0.01 if cell.twin else call_s) for cell in order}

    def search(self, budget_s: float = 240.0) -> dict[str, Found]:
        hooks = Hooks(self.run_pair, clock=lambda: self.now_s)
        return {found.cell.run["backend"]: found for found in Search(CELLS, budget_s, hooks).run()}


def ended(call_s: float) -> Ended:
    """The record of six rounds of three calls."""
    rounds = [float(number) for number in range(1, 7) for _ in range(3)]
    samples = {"total_s": [call_s] * 18, "round": rounds, "position": [0.0] * 18}
    record = {"samples": samples, "marks": {}, "ledger": {"iterations_per_call": 1}, "memory": {}}
    return Ended("ok", messages=[{"record": record}])


@pytest.mark.parametrize("backend", ["linen", "nnx", "equinox"])
def test_three_percent_are_found_in_the_right_backend(backend: str) -> None:
    caught = [Machine(seed, {backend: 1.03}).search() for seed in range(40)]
    assert sum(found[backend].slower for found in caught) >= 36
    assert sum(x.slower for found in caught for name, x in found.items() if name != backend) <= 1


def test_nothing_is_found_where_nothing_changed_or_got_faster() -> None:
    for faster in ({}, {"nnx": 0.9}):
        alarms = [x for seed in range(100) for x in Machine(seed, faster).search().values() if x.slower]
        assert len(alarms) <= 1


def test_time_goes_where_the_answer_is_open() -> None:
    machine = Machine(0, {"nnx": 1.02})
    machine.search(1000.0)
    counts = {name: machine.ran.count(name) for name in ("linen", "nnx", "equinox")}
    assert min(counts.values()) >= FEWEST_RELAYS
    assert counts["nnx"] == max(counts.values())


def test_budget_is_kept_and_what_is_open_is_said() -> None:
    machine = Machine(0, {})
    found = machine.search(50.0)
    assert machine.now_s <= 50.0
    assert not any(x.decided for x in found.values())
    assert "more time" in regressing.sentence(list(found.values()))
    assert {regressing.verdict(x) for x in found.values()} == {"open: more relays are needed"}


def test_ratio_is_now_over_before_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = list(Machine(0, {"nnx": 1.25}).search().values())
    regressing.print_found(found, "abc [red] subject", as_json=False)
    shown = capsys.readouterr().out
    assert "abc [red] subject" in shown
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("nnx"))
    assert "1.2" in line
    assert line.split()[-1] == "slower"
    assert "Slower than it was: nnx" in shown
    regressing.print_found(found, "abc", as_json=True)
    rows = json.loads(capsys.readouterr().out)["programs"]
    assert [row["verdict"] for row in rows].count("slower") == 1
    assert regressing.exit_code(found, interrupted=False) == 1


def test_a_version_that_cannot_take_part_is_told() -> None:
    def run_pair(order: Sequence[Cell], seed: int) -> dict[str, Ended]:
        (before,) = (cell for cell in order if cell.twin)
        return {before.id: Ended("error", "exit code 1: no such module")}

    found = Search(CELLS, 100.0, Hooks(run_pair)).run()
    assert {x.failed for x in found} == {"before: error, exit code 1: no such module"}
    assert regressing.exit_code(found, interrupted=False) == 3


def test_both_versions_run_in_one_relay_and_share_their_programs(tmp_path: Path) -> None:
    """Real processes without a framework: each side by its own command, the copy with the caches of its twin."""
    now, before = CELLS[0], regress.replace(CELLS[0], twin=True)
    commands = {now.id: give(tmp_path / "now"), before.id: give(tmp_path / "before")}
    with relay_launch(keep_caches=True) as launch:
        pace = Pace(turn_s=0.02, relay_s=0.6)
        relay = Relay([now, before], 7, 300.0, pace, lambda: True, commands=commands, copies_load=True)
        found = launch(relay)
    assert {x.outcome for x in found.values()} == {"ok"}
    noted = {side: log(tmp_path / side) for side in ("now", "before")}
    assert {x["name"] for x in noted["now"]} == {"linen"}
    assert {x["name"] for x in noted["before"]} == {"linen'"}
    assert len({x["caches"] for side in noted.values() for x in side}) == 1
    assert isinstance(regress.ratio_of(found, now, before), float)


# Versions.


@pytest.fixture
def clone(tmp_path: Path) -> Callable[..., bytes]:
    """git in a repository whose package was changed once and then again without a commit."""
    package = tmp_path / "src" / "benchback"
    package.mkdir(parents=True)

    def git(*words: str) -> bytes:
        given = ["-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(["git", *given], cwd=tmp_path, check=True, capture_output=True).stdout

    git("init", "-q")
    for text in ("first", "second"):
        (package / "__init__.py").write_text(f"print({text!r})\n")
        git("add", ".")
        git("commit", "-qm", text)
    return git


def printed(tree: Path) -> str:
    command = worker_command(tree, "benchback")
    made = (tree / "benchback" / "__main__.py").write_text("")
    assert made == 0
    return subprocess.run([*command, "3"], capture_output=True, text=True, check=True).stdout.strip()


def test_versions_are_those_of_the_tree_and_of_the_commit(clone: Any, tmp_path: Path) -> None:
    package = tmp_path / "src" / "benchback"
    with trees(package=package) as both:
        assert (printed(both.now), printed(both.before)) == ("second", "first")
        assert both.commit.endswith(" first")
    (package / "__init__.py").write_text("print('third')\n")
    with trees(package=package) as both:
        assert (printed(both.now), printed(both.before)) == ("third", "second")
    with trees("HEAD~1", package) as both:
        (package / "__init__.py").write_text("print('changed while it runs')\n")
        assert (printed(both.now), printed(both.before)) == ("third", "first")


def test_a_commit_that_is_not_there_and_a_folder_that_is_no_clone_are_refused(clone: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run this in a clone"), trees("nothing", tmp_path / "src" / "benchback"):
        pass
    outside = tmp_path.parent / f"{tmp_path.name}-outside" / "benchback"
    outside.mkdir(parents=True)
    with pytest.raises(InputError, match="run this in a clone"), trees(package=outside):
        pass


def test_backends_without_a_program_are_refused() -> None:
    assert [cell.run["backend"] for cell in cells_of(["haiku", "linen", "haiku"])] == ["haiku", "linen"]
    assert len(cells_of([])) == 6
    with pytest.raises(InputError, match="choose among linen"):
        cells_of(["nothing"])


def test_verb_needs_no_framework_to_refuse(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom benchback.cli import regressing\nfrom benchback.errors import InputError\n"
        "try:\n    regressing.regress(['--backends', 'nothing'])\nexcept InputError:\n"
        "    sys.exit(int('jax' in sys.modules or 'torch' in sys.modules))\nsys.exit(2)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
