"""Campaigns of relays: a block is stored whole or not at all, whoever dies, hangs, fills the disk or joins."""

import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from campaign_double import MACHINE, study, work
from relay_campaign import STUDY, hooks, modelled, relayed, share, told
from relay_double import Fault, give, log
from test_campaign import attempts, table
from test_process import SOON_S, is_gone

from benchback.analysis.claims import ALL, all_claims
from benchback.analysis.export import export
from benchback.analysis.reader import read
from benchback.errors import InputError
from benchback.measure import coordinator
from benchback.measure.coordinator import open_campaign
from benchback.measure.policy import MAX_FAILED
from benchback.measure.process import Ended
from benchback.measure.record import Attempt
from benchback.measure.relay import Relay
from benchback.measure.results import block_times
from benchback.measure.stopping import half_width, pair_ratios
from benchback.measure.store import open_store
from benchback.measure.verify import verify

CAMPAIGN = Path(__file__).parent / "relay_campaign.py"
SLOTS = 6
ROOM = 20
"""Pages left on a disk that is nearly full."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "relays.sqlite"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The campaign that nothing happened to, of real processes."""
    folder = tmp_path_factory.mktemp("unbroken")
    assert work(folder / "relays.sqlite", hooks(relayed(give(folder / "runners"))), STUDY)
    return folder / "relays.sqlite"


def by_name(path: Path) -> dict[tuple[str, int], list[Attempt]]:
    """(backend, block) -> its attempts."""
    with open_store(path, readonly=True) as store:
        cells, slots = store.cells(), {slot.id: slot for slot in store.slots()}
    return {(cells[slots[id].cell].run["backend"], slots[id].block): found for id, found in attempts(path).items()}


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def test_a_block_is_one_relay(unbroken: Path) -> None:
    found = by_name(unbroken)
    assert len(found) == SLOTS
    assert {len(tries) for tries in found.values()} == {1}
    for block in (0, 1):
        tries = [tried for (_, b), (tried,) in found.items() if b == block]
        assert len({tried.started_at for tried in tries}) == 1
        assert all(tried.record and "round" in tried.record.samples for tried in tries)
    with open_store(unbroken, readonly=True) as store:
        canaries = Counter((c["block"], c["when"]) for c in store.canaries())
    assert canaries == dict.fromkeys([(block, when) for block in (0, 1) for when in ("before", "after")], 1)


def test_starts_are_in_the_order_of_the_schedule_and_pairs_are_with_the_first_cell_of_the_study(path: Path) -> None:
    """A cell that always started first would pay for the cold file caches of everybody."""
    seen: list[Relay] = []

    def launch(relay: Relay) -> dict[str, Ended]:
        seen.append(relay)
        return modelled(relay)

    assert work(path, hooks(launch), STUDY)
    with open_store(path, readonly=True) as store:
        slots = sorted(store.slots(), key=lambda slot: slot.order)
        scheduled = [[slot.cell for slot in slots if slot.block == block] for block in (0, 1)]
    orders = [[cell.id for cell in relay.cells] for relay in seen]
    assert orders == scheduled
    assert len({order[0] for order in orders}) == 2, "the test shows little: one cell is first in both"
    assert all(relay.reference == STUDY.cells[0] for relay in seen)


# Runners that fail.


@pytest.mark.parametrize(
    ("do", "at", "outcome"),
    [("signalled", "start", "signal"), ("starved", "turn", "memory"), ("empty", "finish", "garbled")],
)
def test_a_runner_that_fails_once_costs_its_block_one_relay(do: str, at: str, outcome: str, path: Path) -> None:
    command = give(path.parent / "runners", Fault("nnx", do, at))
    assert work(path, hooks(relayed(command)), STUDY)
    found = by_name(path)
    (block,) = {b for (_, b), tries in found.items() if len(tries) > 1}
    assert [tried.outcome for tried in found["nnx", block]] == [outcome, "ok"]
    assert {len(tries) for (name, _), tries in found.items() if name != "nnx"} == {1}
    again = [tries[-1].started_at for (_, b), tries in found.items() if b == block]
    assert len(set(again)) == 1, "the others have run again with it"
    assert found["nnx", block][0].started_at < again[0]
    with open_store(path, readonly=True) as store:
        assert store.progress().ok == SLOTS
    assert verify(path) == []


def test_a_runner_that_always_fails_is_given_up_and_the_others_complete_without_it(path: Path) -> None:
    before = {x.pid for x in psutil.Process().children()}
    command = give(path.parent / "runners", Fault("nnx", "exited", times=99))
    assert work(path, hooks(relayed(command)), STUDY)
    for (name, _), tries in by_name(path).items():
        expected = ["error"] * MAX_FAILED if name == "nnx" else ["ok"]
        assert [tried.outcome for tried in tries] == expected
        assert all(tried.detail == "exit code 3: the reason why" for tried in tries if name == "nnx")
    with open_store(path, readonly=True) as store:
        assert (store.progress().ok, store.progress().failed) == (SLOTS - 2, 2)
    assert verify(path) == []
    # Ended children of earlier tests, for which nobody has waited, may still be listed.
    running = [x for x in psutil.Process().children() if x.status() != psutil.STATUS_ZOMBIE]
    assert not {x.pid for x in running} - before


# Coordinators that are killed, asked to stop, late, or several.


def begun(path: Path, folder: Path, *faults: Fault) -> subprocess.Popen:
    give(folder, *faults)
    return subprocess.Popen([sys.executable, str(CAMPAIGN), str(path), str(folder)], stderr=subprocess.PIPE)


def test_nothing_is_stored_of_a_relay_whose_coordinator_was_killed(path: Path, unbroken: Path) -> None:
    """In a second round, while one runner has the baton and the others rest."""
    folder = path.parent / "runners"
    with begun(path, folder, Fault("nnx", "waiting", round=2)) as process:
        wait_until(lambda: (folder / "nnx.0").exists())
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert all(is_gone(x["pid"]) for x in log(folder))
    assert attempts(path) == {}
    assert work(path, hooks(relayed(give(folder))), STUDY)
    assert table(path) == table(unbroken)


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM] * 2])
def test_a_relay_that_is_asked_to_stop_stores_nothing_and_leaves_nobody(
    signals: list[int], path: Path, unbroken: Path
) -> None:
    folder = path.parent / "runners"
    with begun(path, folder, Fault("nnx", "hanging", round=2)) as process:
        wait_until(lambda: (folder / "nnx.0").exists())
        for number in signals:
            process.send_signal(number)
        _, said = process.communicate(timeout=SOON_S)
    assert (process.returncode, said) == (130, b"")
    assert not any(psutil.pid_exists(x["pid"]) for x in log(folder))
    with open_store(path) as store:
        assert store.progress().running == 0
        assert list(store.attempts()) == []
    assert work(path, hooks(relayed(give(folder))), STUDY)
    assert table(path) == table(unbroken)


def test_a_relay_that_lost_a_lease_stores_nothing(path: Path) -> None:
    stolen: list[str] = []
    with open_campaign(path, STUDY, fingerprint=MACHINE) as thief:

        def launch(relay: Relay) -> dict[str, Ended]:
            if not stolen:
                thief.forget(lambda name: True)
                lease = thief.lease("thief", 60.0)
                assert lease is not None
                stolen.append(lease.slot.id)
                thief.release(lease)
            elif len(stolen) == 1:
                assert list(thief.attempts()) == [], "of the first relay, whose other leases were lost with that one"
                stolen.append("checked")
            return modelled(relay)

        assert work(path, hooks(launch), STUDY)
        assert [event.kind for event in thief.events()].count("fenced") == 1
    assert {len(tries) for tries in attempts(path).values()} == {1}
    assert len(attempts(path)) == SLOTS


def test_a_full_disk_stores_no_part_of_a_block(path: Path) -> None:
    """Room for one of a block's attempts, but not for all three."""

    def wordy(relay: Relay) -> dict[str, Ended]:
        said = modelled(relay)
        return {id: replace(x, log=random.Random(id).randbytes(30_000).hex()) for id, x in said.items()}

    with open_campaign(path, STUDY, fingerprint=MACHINE) as store:
        (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
        store.connection.execute(f"PRAGMA max_page_count = {pages + ROOM}")
        with pytest.raises(OSError, match="the disk is full") as caught:
            coordinator.work(store, STUDY, hooks(wordy))
        assert caught.value.errno == errno.ENOSPC
        assert list(store.attempts()) == []
        (used,) = store.connection.execute("PRAGMA page_count").fetchone()
        store.connection.execute("PRAGMA max_page_count = 1000000")
        assert coordinator.work(store, STUDY, hooks(wordy))
        (full,) = store.connection.execute("PRAGMA page_count").fetchone()
        assert (full - used) / SLOTS < ROOM, "not even one had room: the test shows nothing"
    assert verify(path) == []
    assert len(attempts(path)) == SLOTS


@pytest.fixture(scope="module")
def coordinators() -> Iterator[Any]:
    """Starts coordinators of MANY as processes."""
    context = multiprocessing.get_context("forkserver")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(CAMPAIGN.parent)
    yield lambda path: context.Process(target=share, args=(path,))
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


def test_of_two_coordinators_each_block_is_run_by_one(path: Path, coordinators: Any) -> None:
    two = [coordinators(path) for _ in range(2)]
    for process in two:
        process.start()
    for process in two:
        process.join(SOON_S)
        assert process.exitcode == 0
    workers: dict[tuple[str, int], set[int]] = {}
    with open_store(path, readonly=True) as store:
        assert store.progress().ok == store.progress().total
        cells, slots = store.cells(), {slot.id: slot for slot in store.slots()}
        for attempt in store.attempts():
            slot = slots[attempt.slot]
            assert attempt.record is not None
            place = cells[slot.cell].group, slot.block
            workers.setdefault(place, set()).add(attempt.record.ledger["coordinator"])
    assert len(workers) == 24
    assert {len(pids) for pids in workers.values()} == {1}
    assert len(set.union(*workers.values())) == 2, "one did all: the test shows nothing"
    assert {len(tries) for tries in attempts(path).values()} == {1}


# Protocols and budgets.


def test_a_store_keeps_its_protocol(path: Path) -> None:
    runs, relay = (study(gammas=(0.9,), protocol=name) for name in ("runs", "relay"))
    for begun_as, other, name in ((relay, runs, "a"), (runs, relay, "b")):
        file = path.with_name(name)
        open_campaign(file, begun_as, fingerprint=MACHINE).close()
        with pytest.raises(InputError, match="choose another --store"):
            open_campaign(file, other, fingerprint=MACHINE)
        open_campaign(file, begun_as, fingerprint=MACHINE).close()


class Simulated:
    """Relays whose blocks take 10 s on a clock of their own, the first one more; one group is less certain."""

    def __init__(self, first_s: float = 10.0) -> None:
        self.now_s, self.next_s = 0.0, first_s
        self.ran: list[str] = []

    def clock(self) -> float:
        return self.now_s

    def launch(self, relay: Relay) -> dict[str, Ended]:
        cells, seed = relay.cells, relay.seed
        took_s, self.next_s = self.next_s, 10.0
        self.now_s += took_s
        self.ran.append(cells[0].group)
        spread = 0.05 if cells[0].run["gamma"] == 0.9 else 0.02
        noise = [random.Random(f"{cell.id} {seed}").gauss(0, spread) for cell in cells]
        return {
            cell.id: told(cell, 0.01 * (1 + x), took_s / len(cells), seed) for cell, x in zip(cells, noise, strict=True)
        }


def budgeted(path: Path, budget_s: float | None, **changes: Any) -> Simulated:
    chosen = study(("linen", "nnx"), aa=False, protocol="relay", precision=0.001, budget_s=budget_s, **changes)
    simulated = Simulated()
    logged: list[str] = []
    doing = replace(hooks(simulated.launch), clock=simulated.clock, log=logged.append)
    assert work(path, doing, chosen)
    assert ("the time is used up" in logged) == (budget_s == 25.0)
    return simulated


def widest(path: Path, ran: Sequence[str]) -> str:
    """The group with the widest interval after these blocks."""
    done = Counter(ran)
    with open_store(path, readonly=True) as store:
        times, members = block_times(store, 0), {cell.group: [] for cell in store.cells().values()}
        for id, cell in store.cells().items():
            members[cell.group].append(id)
    widths = {}
    for group, ids in members.items():
        so_far = {id: {b: x for b, x in times[id].items() if b < done[group]} for id in ids}
        widths[group] = max(half_width(ratios) for ratios in pair_ratios(so_far, ids).values())
    return max(widths, key=lambda group: widths[group])


def test_a_budget_adds_blocks_where_they_are_needed_most_and_is_kept(path: Path) -> None:
    simulated = budgeted(path, 125.0, max_blocks=30)
    assert simulated.now_s == 120.0, "as many blocks as fit, and none that does not"
    assert Counter(simulated.ran[:4]) == dict.fromkeys(set(simulated.ran), 2), "the schedule first"
    for i in range(4, 12):
        assert simulated.ran[i] == widest(path, simulated.ran[:i])
    assert len(set(simulated.ran[4:])) == 2, "only one was extended: the test shows little"


def test_a_budget_that_is_too_small_for_the_schedule_is_kept_too(path: Path) -> None:
    simulated = budgeted(path, 25.0)
    assert simulated.now_s == 20.0
    with open_store(path, readonly=True) as store:
        assert store.progress().running == 0
    budgeted(path, None)
    with open_store(path, readonly=True) as store:
        assert store.progress().open == 0


def test_a_first_block_that_compiles_for_all_does_not_end_a_campaign(path: Path) -> None:
    chosen = study(("linen", "nnx"), (0.9,), aa=False, protocol="relay", keep_caches=True, precision=0.001)
    simulated = Simulated(first_s=100.0)
    doing = replace(hooks(simulated.launch), clock=simulated.clock)
    assert work(path, doing, replace(chosen, budget_s=190.0))
    assert len(simulated.ran) == 8, "another like the first would not have fitted; later ones are shorter"


def test_without_a_budget_every_group_goes_on_until_it_is_precise(path: Path) -> None:
    simulated = budgeted(path, None, max_blocks=5)
    assert set(Counter(simulated.ran).values()) == {5}


def waiting(relay: Relay) -> dict[str, Ended]:
    """A relay in which every call waits for a processor, each for another while, and every start takes another time."""
    made = {}
    for id, ended in modelled(relay).items():
        record = ended.messages[0]["record"]
        waits = [random.Random(f"{id} {relay.seed} {i}").random() for i in range(len(record["samples"]["total_s"]))]
        total_s = [x + wait for x, wait in zip(record["samples"]["total_s"], waits, strict=True)]
        start_s = record["marks"]["first_call"] + waits[0]
        record = {**record, "samples": record["samples"] | {"total_s": total_s, "waited_s": waits}}
        record = {**record, "marks": record["marks"] | {"first_call": start_s}}
        made[id] = replace(ended, messages=[{"kind": "record", "record": record}])
    return made


def test_every_claim_can_be_recomputed_from_the_export_by_the_script_of_the_docs(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert work(path, hooks(waiting), study(gammas=(0.9, 0.99), min_blocks=3, max_blocks=3, protocol="relay"))
    with open_store(path) as store:
        store.add_event("parity", {"verdicts": {cell.proof: "pass" for cell in store.cells().values()}})
        source, _ = read(store), export(store, tmp_path / "out", "parquet")
    claims = [claim for claim in all_claims(source) if claim.overall.low is not None]
    page = (Path(__file__).parents[1] / "docs" / "reading-the-report.md").read_text()
    script = page.partition("## Recompute a claim")[2].partition("```python\n")[2].partition("```")[0]
    assert len([line for line in script.splitlines() if line and "import" not in line]) <= 10
    part = "pl.col('env') == '{}'"
    for env in (ALL, *source.envs):
        filtered = script.replace('.parquet")', f'.parquet").filter({part.format(env) if env != ALL else True})')
        exec(filtered.replace("DIR", str(tmp_path / "out")), {})
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        found = {(metric, name): [float(x) for x in numbers] for metric, name, *numbers in lines}
        asked = [claim for claim in claims if claim.env == env and claim.model == ALL]
        assert {(claim.metric, claim.variant) for claim in asked} == found.keys()
        for claim in asked:
            row = claim.overall
            assert found[claim.metric, claim.variant] == pytest.approx([row.ratio, row.low, row.high])
        steady = [claim for claim in asked if claim.metric == "steady" and not claim.subject.twin]
        assert all(1.0 < (claim.ratio or 0.0) < 1.1 for claim in steady), "waits of up to a second are not in it"
