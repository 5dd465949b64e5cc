"""The driver of many machines: every block on one machine, nothing lost or counted twice, whatever machines do.

The machines are doubles in this process; the store, the scheduler and the driver are the real thing.
"""

import json
import multiprocessing
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign_double import HOOKS, MACHINE, study
from relay_campaign import modelled as with_coordinator
from test_campaign import table

from benchback.analysis.reader import read
from benchback.cli import planning
from benchback.errors import InputError
from benchback.measure.block import BlockJob, measure
from benchback.measure.coordinator import Hooks, open_campaign, work
from benchback.measure.dispatch import Block, Dispatcher
from benchback.measure.driver import MOST_LOST, Done, Driver, Gone, Joined, Proved, Report, alike
from benchback.measure.process import Ended, Tick
from benchback.measure.record import Cell, Slot
from benchback.measure.relay import Relay
from benchback.measure.store import Counts, Store, open_store
from benchback.measure.virtual import expected, foresee

STUDY = study(gammas=[0.9 + i / 1000 for i in range(6)], min_blocks=3, max_blocks=3, protocol="relay", aa=False)


def modelled(relay: Relay) -> dict[str, Ended]:
    """A relay whose times depend on cell and seed only, whoever runs it."""
    found = with_coordinator(relay)
    for ended in found.values():
        del ended.messages[0]["record"]["ledger"]["coordinator"]
    return found


def no_launch(cell: Cell, seed: int, timeout_s: float, tick: Tick) -> Ended:
    raise AssertionError("blocks are relays")


FAST = replace(HOOKS, launch=None, relay=modelled, sample=lambda: {"time_s": 0.0, "own_s": 0.0})


class Doubles:
    """Stations in this process: a block is done some polls after it was begun, unless something happens to it."""

    def __init__(self, machines: dict[str, dict[str, Any]], seed: int = 0) -> None:
        self.clock_s, self.random = 0.0, random.Random(seed)
        self.begun: dict[str, tuple[int, BlockJob]] = {}
        self.reports: list[Report] = [Joined(name, x) for name, x in machines.items()]
        self.silent: dict[str, float] = {}
        self.ran: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.stopped = False

    def now(self) -> float:
        return self.clock_s

    def begin(self, station: str, token: int, job: BlockJob) -> None:
        assert station not in self.begun, "one block at a time"
        self.begun[station] = token, job
        self.ran[station].append((job.cells[0].group, job.seed))

    def prove(self, station: str, proofs: Sequence[str]) -> None:
        self.reports.append(Proved(station, dict.fromkeys(proofs, "pass")))

    def done(self, station: str) -> Done:
        token, job = self.begun.pop(station)
        return Done(station, token, measure(job, no_launch, modelled, lambda: True, sample=FAST.sample))

    def happens(self) -> list[Report]:
        """What happens besides reports that wait: by default a random station is done."""
        free = [name for name in self.begun if name not in self.silent]
        return [self.done(self.random.choice(sorted(free)))] if free else []

    def poll(self, limit_s: float) -> list[Report]:
        self.clock_s += limit_s
        waiting, self.reports = self.reports, []
        return waiting or self.happens()

    def silent_s(self, station: str) -> float:
        return self.clock_s - self.silent.get(station, self.clock_s)

    def stop(self) -> None:
        self.stopped = True


def machines(*cpus: str) -> dict[str, dict[str, Any]]:
    return {f"station {i}": MACHINE | {"cpu": cpu} for i, cpu in enumerate(cpus)}


def drive(path: Path, stations: Doubles, hooks: Hooks = FAST, **options: Any) -> bool:
    with open_campaign(path, STUDY, fingerprint=MACHINE) as store:
        hooks = replace(hooks, clock=stations.now)
        return Driver(store, STUDY, hooks, stations, lease_s=60.0, renew_s=15.0, **options).work()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "many.sqlite"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The table of the same campaign on one machine."""
    path = tmp_path_factory.mktemp("alone") / "alone.sqlite"
    with open_campaign(path, STUDY, fingerprint=MACHINE) as store:
        assert work(store, STUDY, FAST)
    return table(path)


def placed(store: Store) -> dict[tuple[str, int, int], list[str]]:
    """Block -> the stations that began it."""
    found = defaultdict(list)
    for event in store.events():
        if event.kind == "placed":
            found[event.detail["group"], event.detail["block"], event.detail["stratum"]].append(event.detail["station"])
    return dict(found)


@pytest.mark.parametrize("count", [1, 3])
def test_a_campaign_on_many_machines_ends_as_on_one(path: Path, alone: list[Any], count: int) -> None:
    stations = Doubles(machines(*[MACHINE["cpu"]] * count))
    assert drive(path, stations)
    assert table(path) == alone
    assert stations.stopped
    assert len(stations.ran) == count
    with open_store(path, readonly=True) as store:
        assert {len(x) for x in placed(store).values()} == {1}
        assert len(placed(store)) == 18


def test_where_blocks_go_is_drawn_by_the_seed_among_the_free() -> None:
    def drawn(seed: int) -> list[str]:
        dispatcher = Dispatcher(seed)
        for name in ("c", "a", "b"):
            dispatcher.join(name, 0)
        dispatcher.add(Block("g", n, 0, (Slot("x", n, 0, 10 * n),)) for n in range(40))
        found = []
        while (one := dispatcher.draw()) is not None:
            found.append(one[1])
            dispatcher.finish(one[1])
        return found

    assert drawn(0) == drawn(0) != drawn(1)
    assert min(Counter(drawn(0)).values()) > 5


def test_machines_of_other_kinds_have_strata_of_their_own(path: Path) -> None:
    assert drive(path, Doubles(machines(MACHINE["cpu"], "another")))
    with open_store(path, readonly=True) as store:
        assert [x["cpu"] for x in store.strata()] == [MACHINE["cpu"], "another"]
        where = placed(store)
        assert {(stratum, *x) for (_, _, stratum), x in where.items()} == {(0, "station 0"), (1, "station 1")}
        assert len(where) == 2 * 18
        assert read(store, stratum=0).parity == read(store, stratum=1).parity != {}


def test_machines_whose_memory_differs_a_little_are_of_one_kind() -> None:
    first = {"cpu": "x", "memory_bytes": 100_000}
    assert alike(first, {"cpu": "x", "memory_bytes": 101_000})
    assert not alike(first, {"cpu": "x", "memory_bytes": 120_000})
    assert not alike(first, {"cpu": "y", "memory_bytes": 100_000})


def test_a_station_that_ends_gives_its_block_back(path: Path, alone: list[Any]) -> None:
    class Mortal(Doubles):
        def happens(self) -> list[Report]:
            if self.begun and self.random.random() < 0.25:
                name = self.random.choice(sorted(self.begun))
                del self.begun[name]
                self.reports.append(Joined(f"{name} again", MACHINE))
                return [Gone(name, "killed")]
            return super().happens()

    assert drive(path, Mortal(machines(*[MACHINE["cpu"]] * 3)))
    assert table(path) == alone


def test_a_station_that_hangs_is_fenced_when_it_comes_back(path: Path, alone: list[Any]) -> None:
    class Sleeper(Doubles):
        def happens(self) -> list[Report]:
            if "station 1" in self.begun and "station 1" not in self.silent and len(self.ran["station 1"]) == 2:
                self.silent["station 1"] = self.clock_s
            if self.silent and self.silent_s("station 1") > 120 and "station 1" in self.begun:
                report = self.done("station 1")
                self.silent = {"nobody": 0.0}
                return [report]
            # Slowly enough for the lease to run out before the other station has done everything.
            return super().happens() if self.random.random() < 0.3 else []

    stations = Sleeper(machines(*[MACHINE["cpu"]] * 2))
    assert drive(path, stations)
    assert table(path) == alone
    with open_store(path, readonly=True) as store:
        kinds = Counter(event.kind for event in store.events())
        assert (kinds["lost"], kinds["fenced"]) == (1, 1)
        assert sorted(map(len, placed(store).values()))[-2:] == [1, 2]


def test_a_machine_that_joins_late_is_used(path: Path, alone: list[Any]) -> None:
    class Growing(Doubles):
        def happens(self) -> list[Report]:
            if len(self.ran["station 0"]) == 4 and "late" not in self.ran:
                self.ran["late"] = []
                return [Joined("late", MACHINE)]
            return super().happens()

    stations = Growing(machines(MACHINE["cpu"]))
    assert drive(path, stations)
    assert table(path) == alone
    assert len(stations.ran["late"]) > 3


def test_a_block_that_takes_every_station_with_it_is_put_aside(path: Path) -> None:
    class Deadly(Doubles):
        def happens(self) -> list[Report]:
            for name, (_, job) in sorted(self.begun.items()):
                if job.cells[0].group == self.deadly:
                    del self.begun[name]
                    self.reports.append(Joined(f"{name}+", MACHINE))
                    return [Gone(name, "killed")]
            return super().happens()

        deadly = STUDY.cells[0].group

    assert not drive(path, Deadly(machines(MACHINE["cpu"])))
    with open_store(path, readonly=True) as store:
        assert store.progress().open == 9
        assert Counter(event.kind for event in store.events())["lost"] == 3 * MOST_LOST


def test_without_a_machine_the_driver_says_so_and_can_go_on_later(path: Path, alone: list[Any]) -> None:
    class Leaving(Doubles):
        def happens(self) -> list[Report]:
            if len(self.ran["station 0"]) == 5 and self.begun:
                self.begun.clear()
                return [Gone("station 0", "switched off")]
            return super().happens()

    said: list[str] = []
    assert not drive(path, Leaving(machines(MACHINE["cpu"])), replace(FAST, log=said.append))
    assert "run again when they are back" in said[-1]
    assert drive(path, Doubles(machines(MACHINE["cpu"])))
    assert table(path) == alone


def test_asked_to_stop_ends_stations_and_frees_their_blocks(path: Path, alone: list[Any]) -> None:
    stations = Doubles(machines(*[MACHINE["cpu"]] * 2))
    assert not drive(path, stations, replace(FAST, asked_to_stop=lambda: len(stations.ran["station 0"]) > 2))
    assert stations.stopped
    with open_store(path, readonly=True) as store:
        assert store.progress().running == 0
    assert drive(path, Doubles(machines(MACHINE["cpu"])))
    assert table(path) == alone


def test_a_variant_that_fails_is_given_up_and_the_others_run_without_it(path: Path) -> None:
    class Failing(Doubles):
        def done(self, station: str) -> Done:
            token, job = self.begun.pop(station)
            bad = [cell for cell in job.cells if cell.run["backend"] == "nnx"]

            def relay(given: Any) -> dict[str, Ended]:
                return {bad[0].id: Ended("error", "exit 3")} if bad else modelled(given)

            return Done(station, token, measure(job, no_launch, relay, lambda: True, sample=FAST.sample))

    assert drive(path, Failing(machines(*[MACHINE["cpu"]] * 2)))
    with open_store(path, readonly=True) as store:
        counts = store.progress()
        assert (counts.ok, counts.failed, counts.open) == (36, 18, 0)


class Doomed(Doubles):
    """Stations that end now and then, and with them the driver's process, at once."""

    def happens(self) -> list[Report]:
        if self.random.random() < 0.1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.begun and self.random.random() < 0.1:
            name = self.random.choice(sorted(self.begun))
            del self.begun[name]
            self.reports.append(Joined(f"{name}+", MACHINE))
            return [Gone(name, "killed")]
        return super().happens()


@pytest.mark.slow
def test_200_drivers_killed_at_random_lose_nothing_and_count_nothing_twice(tmp_path: Path, alone: list[Any]) -> None:
    killed, campaigns = 0, 0
    path = tmp_path / "0.sqlite"
    while killed < 200:
        stations = Doomed(machines(*[MACHINE["cpu"]] * 3), seed=1000 * campaigns + killed)
        driver = multiprocessing.get_context("fork").Process(target=drive, args=(path, stations))
        driver.start()
        driver.join()
        killed += driver.exitcode == -signal.SIGKILL
        if driver.exitcode == 0 and not progress(path).open:
            assert table(path) == alone
            campaigns += 1
            path = tmp_path / f"{campaigns}.sqlite"
    assert campaigns > 10


def progress(path: Path) -> Counts:
    with open_store(path, readonly=True) as store:
        return store.progress()


# The same driver in virtual time.


def test_a_plan_keeps_machines_busy_and_counts_every_block() -> None:
    found = [foresee(STUDY, count, lambda cell, variants, again: 10.0) for count in (1, 4, 36)]
    block_s = 3 * 10.0 + 1.0
    assert [x.blocks for x in found] == [18, 18, 18]
    assert [x.makespan_s for x in found] == pytest.approx([18 * block_s, 5 * block_s, block_s])
    assert [x.idle for x in found] == pytest.approx([0.0, 1 - 18 / 20, 0.5])


def test_a_plan_takes_what_was_measured_and_else_the_model() -> None:
    first, second, *_ = STUDY.cells
    seconds = expected(STUDY, {first.id: [1.0, 2.0, 9.0]})
    assert seconds(first, 3, False) == 2.0
    assert seconds(second, 3, False) > 2.0


def test_a_plan_of_many_machines_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert planning.plan(["smoke", "--machines", "1,2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["machines"]
    assert [row["machines"] for row in found] == [1, 2]
    assert found[1]["makespan_s"] < found[0]["makespan_s"]
    assert planning.plan(["smoke", "--machines", "2"]) == 0
    assert "blocks on equal machines" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"must be numbers from 1 to 10000, e\.g\. 1,4,16"):
        planning.plan(["smoke", "--machines", "1,zero"])
    with pytest.raises(InputError, match="add --order protocol --protocol relay"):
        planning.plan(["smoke", "--machines", "1", "--protocol", "runs"])
