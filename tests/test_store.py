"""The campaign store: nothing acknowledged is lost, nothing is counted twice, nothing damaged is believed."""

import errno
import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from store_writer import attempt_for

from benchback.errors import InputError
from benchback.measure import connection, schema
from benchback.measure import store as stores
from benchback.measure.connection import check_local, file_system, patiently
from benchback.measure.policy import Try, accepted_attempt, is_closed
from benchback.measure.record import Attempt, Cell, Record, Slot, canonical
from benchback.measure.store import Counts, Damaged, Fenced, Lease, Store, create, open_store
from benchback.measure.verify import verify

WRITER = Path(__file__).with_name("store_writer.py")
CAMPAIGN = {"study": {"name": "smoke"}, "note": "a note", "order": "protocol", "fingerprint": {"cpu": "x"}}
RUN = {
    "algorithm": "ppo",
    "dtype": "float32",
    "hidden_sizes": [],
    "model": "small",
    "num_steps": 8,
    "num_iterations": 5,
    "env": "gymnax/CartPole-v1",
    "mode": "jit",
    "unit": "phase",
    "chunk": 10,
    "num_envs": 4,
    "gradients": "framework",
}
CELLS = [Cell(RUN | {"backend": backend}) for backend in ("linen", "nnx")]


def slots_of(blocks: int, cells: list[Cell] = CELLS) -> list[Slot]:
    return [Slot(cell.id, b, 1000 + b, b * len(cells) + i) for b in range(blocks) for i, cell in enumerate(cells)]


@dataclass
class Clock:
    """Time that passes when the test says so."""

    now: float = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "campaign.db"


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[Store]:
    with create(path, CAMPAIGN, CELLS, slots_of(3), clock) as store:
        yield store


def leased(store: Store, owner: str = "me", lease_s: float = 60.0) -> Lease:
    lease = store.lease(owner, lease_s)
    assert lease is not None
    return lease


def finish(store: Store, outcome: str = "ok", *tags: str) -> Lease:
    """One more attempt with that end."""
    lease = leased(store)
    attempt = attempt_for(lease)
    record = attempt.record if outcome == "ok" else None
    store.finish(lease, replace(attempt, outcome=outcome, tags=tags, record=record))
    return lease


def tamper(path: Path, *statements: Any) -> None:
    """Run SQL on a store behind its back, with its triggers out of the way and in place again afterwards."""
    with closing(sqlite3.connect(path)) as raw, raw:
        triggers = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            raw.execute(*statement if isinstance(statement, tuple) else (statement,))
        for _, sql in triggers:
            raw.execute(sql)


def content(store: Store) -> tuple[Any, ...]:
    """Everything a store says."""
    said = store.campaign(), store.cells(), store.slots(), store.strata(), store.canaries(), store.events()
    return *said, list(store.attempts())


# What is written is what is read.


def test_a_store_gives_back_what_it_was_given(path: Path, clock: Clock) -> None:
    with create(path, CAMPAIGN, CELLS, slots_of(2), clock) as store:
        store.add_canary({"block": 0, "matmul_s": 0.25})
        store.add_event("re-run", {"why": "noise"})
        first = finish(store, "ok", "in-process")
        failed = finish(store, "timeout")
    with open_store(path, readonly=True) as store:
        assert store.campaign() == CAMPAIGN
        assert store.cells() == {cell.id: cell for cell in CELLS}
        assert store.slots() == slots_of(2)
        assert store.strata() == [{"cpu": "x"}]
        assert store.canaries() == [{"block": 0, "matmul_s": 0.25}]
        assert [(e.kind, e.detail, e.at) for e in store.events()] == [
            ("re-run", {"why": "noise"}, "2001-09-09T01:46:40.000+00:00")
        ]
        ok = replace(attempt_for(first), tags=("in-process",))
        bad = replace(attempt_for(failed), outcome="timeout", record=None)
        assert list(store.attempts()) == [ok, bad]
        assert list(store.attempts(failed.slot.id)) == [bad]
        assert list(store.attempts("no such slot")) == []
    assert verify(path) == []


def test_the_file_is_a_durable_strict_wal_database(store: Store) -> None:
    def pragma(name: str) -> Any:
        return store.connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert (pragma("journal_mode"), pragma("synchronous"), pragma("foreign_keys")) == ("wal", 2, 1)
    tables = store.connection.execute("PRAGMA table_list").fetchall()
    ours = {name: strict for _, name, kind, _, _, strict in tables if kind == "table" and "sqlite_" not in name}
    assert ours == dict.fromkeys([*schema.SEALED, "lease"], 1)


def test_an_existing_file_is_never_replaced(store: Store, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists; choose another name"):
        create(path, CAMPAIGN, CELLS, [])
    assert path.read_bytes() == before


def test_of_two_that_create_a_store_at_once_one_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = stores._write

    def overtaken(draft: Path, *arguments: Any) -> None:
        write(draft, *arguments)
        path.write_bytes(b"another's")

    monkeypatch.setattr(stores, "_write", overtaken)
    with pytest.raises(InputError, match="exists"):
        create(path, CAMPAIGN, CELLS, [])
    assert path.read_bytes() == b"another's"
    assert list(path.parent.iterdir()) == [path]


def test_the_log_of_a_removed_store_is_not_replayed_onto_a_new_one(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(b"left over")
    with pytest.raises(InputError, match="left of a store that was removed"):
        create(path, CAMPAIGN, CELLS, [])


def test_a_failed_creation_leaves_nothing_behind(path: Path) -> None:
    with pytest.raises(ValueError, match="its cell or stratum is not"):
        create(path, CAMPAIGN, CELLS[:1], slots_of(1))
    with pytest.raises(ValueError, match="JSON"):
        create(path, {"note": float("nan")}, CELLS, [])
    assert list(path.parent.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a folder"):
        create(tmp_path / "nowhere" / "campaign.db", CAMPAIGN, CELLS, [])


def test_slots_are_only_ever_appended(store: Store) -> None:
    more = Slot(CELLS[0].id, 3, 1003, 9)
    store.add_slots([more])
    assert store.slots() == [*slots_of(3), more]
    for wrong in (replace(more, order=30), replace(more, block=4, order=8), Slot("unknown", 0, 0, 30)):
        with pytest.raises(ValueError, match=r"not after the last|there already"):
            store.add_slots([replace(more, block=9, order=20), wrong])
    assert store.slots() == [*slots_of(3), more]


def test_slots_of_a_new_stratum_are_apart(store: Store) -> None:
    number = store.add_stratum({"cpu": "y"})
    store.add_slots([Slot(CELLS[0].id, 0, 1000, 100, number)])
    assert (number, store.strata()) == (1, [{"cpu": "x"}, {"cpu": "y"}])
    lease = store.lease("me", 60.0, stratum=1)
    assert lease is not None
    assert lease.slot.id == f"{CELLS[0].id}/0@1"
    assert store.lease("me", 60.0, stratum=1) is None
    assert store.progress(1) == Counts(total=1, ok=0, failed=0, running=1)
    assert store.progress(0) == Counts(total=6, ok=0, failed=0, running=0)


# When a slot is done.

OK, NOISY, UNSETTLED, BROKEN, STOPPED = (
    Try("ok", ("in-process",)),
    Try("ok", ("noise",)),
    Try("ok", ("canary", "noise")),
    Try("signal", ()),
    Try("interrupted", ()),
)


@pytest.mark.parametrize(
    ("tries", "closed", "result"),
    [
        ([], False, None),
        ([OK], True, OK),
        ([STOPPED] * 9, False, None),
        ([STOPPED, OK], True, OK),
        ([BROKEN], False, None),
        ([BROKEN, BROKEN], True, None),
        ([BROKEN, STOPPED, BROKEN], True, None),
        ([BROKEN, OK], True, OK),
        ([NOISY], False, NOISY),
        ([NOISY, UNSETTLED], False, UNSETTLED),
        ([NOISY, OK], True, OK),
        ([NOISY, NOISY, UNSETTLED], True, UNSETTLED),
        ([NOISY, BROKEN, NOISY], False, NOISY),
        ([NOISY, BROKEN, BROKEN], True, NOISY),
    ],
)
def test_a_slot_is_closed_by_a_clean_result_or_by_enough_tries(tries: list[Try], closed: bool, result: Any) -> None:
    assert is_closed(tries) is closed
    assert accepted_attempt(tries) is result


@pytest.mark.parametrize("outcome", ["error", "signal", "timeout", "memory", "garbled"])
def test_every_failure_counts_as_one(outcome: str) -> None:
    assert is_closed([Try(outcome, ())] * 2)


def test_a_campaign_of_failures_completes(store: Store) -> None:
    numbers = Counter(finish(store, "error").slot.id for _ in range(12))
    assert set(numbers.values()) == {2}
    assert store.lease("me", 1.0) is None
    assert store.progress() == Counts(total=6, ok=0, failed=6, running=0)


def test_a_noisy_attempt_is_kept_and_made_again(store: Store) -> None:
    claims = [finish(store, "ok", "noise"), finish(store, "interrupted"), finish(store)]
    assert [(c.slot.order, c.number) for c in claims] == [(0, 0), (0, 1), (0, 2)]
    assert [a.tags for a in store.attempts(claims[0].slot.id)] == [("noise",), (), ()]
    assert leased(store).slot.order == 1


# Leases and fences.


def test_slots_are_leased_in_order_and_by_one_owner_only(store: Store) -> None:
    leases = [leased(store) for _ in range(6)]
    assert [lease.slot for lease in leases] == slots_of(3)
    assert store.lease("other", 60.0) is None
    assert [lease.fence for lease in leases] == sorted({lease.fence for lease in leases})
    assert store.progress() == Counts(total=6, ok=0, failed=0, running=6)


def test_a_late_writer_is_fenced_off(store: Store, clock: Clock) -> None:
    late = leased(store, "late", lease_s=10.0)
    clock.now += 10.0
    heir = leased(store, "heir")
    assert heir.slot == late.slot
    assert heir.fence > late.fence
    for act in (lambda: store.finish(late, attempt_for(late)), lambda: store.renew(late, 60.0)):
        with pytest.raises(Fenced, match="another owner took over"):
            act()
    store.release(late)
    store.finish(heir, attempt_for(heir))
    with pytest.raises(Fenced):
        store.finish(late, attempt_for(late))
    assert [a.slot for a in store.attempts()] == [heir.slot.id]


def test_fences_grow_even_when_every_lease_is_gone(store: Store) -> None:
    first = leased(store)
    store.release(first)
    second = leased(store)
    assert second.slot == first.slot
    assert second.fence > first.fence
    with pytest.raises(Fenced):
        store.finish(first, attempt_for(first))


def test_a_lease_that_ran_out_unnoticed_still_counts(store: Store, clock: Clock) -> None:
    lease = leased(store, lease_s=10.0)
    clock.now += 1000.0
    store.finish(lease, attempt_for(lease))
    assert store.progress().ok == 1


def test_a_renewed_lease_is_not_taken_over(store: Store, clock: Clock) -> None:
    lease = leased(store, lease_s=10.0)
    clock.now += 9.0
    store.renew(lease, 10.0)
    clock.now += 9.0
    assert leased(store, "other").slot != lease.slot
    clock.now += 1.0
    assert leased(store, "third").slot == lease.slot


def test_slots_of_an_owner_known_to_be_gone_are_open_at_once(store: Store) -> None:
    gone, alive = leased(store, "gone"), leased(store, "alive")
    store.forget(lambda owner: owner == "gone")
    heir = leased(store, "heir")
    assert heir.slot == gone.slot
    with pytest.raises(Fenced):
        store.finish(gone, attempt_for(gone))
    store.finish(alive, attempt_for(alive))
    store.finish(heir, attempt_for(heir))


def by_block(slot: Slot) -> int:
    return slot.block


def test_the_slots_of_one_block_are_leased_together(store: Store) -> None:
    mine, theirs, third = (store.lease_together(name, 60.0, None, by_block) for name in ("me", "they", "me"))
    assert [[lease.slot for lease in x] for x in (mine, theirs, third)] == [slots_of(3)[i : i + 2] for i in (0, 2, 4)]
    assert store.lease_together("they", 60.0, None, by_block) == []
    store.release(*mine)
    assert [lease.slot for lease in store.lease_together("they", 60.0, None, by_block)] == slots_of(1)


def test_only_the_open_slots_of_a_block_are_leased(store: Store) -> None:
    done = finish(store).slot
    assert [lease.slot for lease in store.lease_together("me", 60.0, None, by_block)] == [
        slot for slot in slots_of(1) if slot != done
    ]


def test_a_block_that_another_owner_works_on_is_left_alone(store: Store, clock: Clock) -> None:
    first, second = store.lease_together("me", 60.0, None, by_block)
    clock.now += 30
    store.renew(second, 60.0)
    clock.now += 40
    # The lease on the first slot has run out, that on the second has not.
    assert {lease.slot.block for lease in store.lease_together("they", 60.0, None, by_block)} == {1}
    clock.now += 60
    assert {lease.slot.block for lease in store.lease_together("they", 60.0, None, by_block)} == {0}
    with pytest.raises(Fenced):
        store.finish(first, attempt_for(first))


def test_attempts_of_a_block_are_stored_all_or_none(store: Store, clock: Clock) -> None:
    first, second = store.lease_together("me", 60.0, None, by_block)
    clock.now += 30
    store.renew(first, 60.0)
    clock.now += 40
    store.connection.execute("DELETE FROM lease WHERE fence = ?", (second.fence,))
    for order in ([first, second], [second, first]):
        with pytest.raises(Fenced):
            store.finish_together([(lease, attempt_for(lease)) for lease in order])
        with pytest.raises(Fenced):
            store.finish_together([(first, attempt_for(first))], [second])
        assert list(store.attempts()) == []
        assert store.progress().running == 1


def test_what_is_not_finished_is_free_at_the_same_moment(store: Store) -> None:
    first, second = store.lease_together("me", 60.0, None, by_block)
    failed = replace(attempt_for(first), outcome="signal", record=None)
    store.finish_together([(first, failed)], [second])
    assert store.progress().running == 0
    assert [(x.slot, x.number) for x in store.lease_together("they", 60.0, None, by_block)] == [
        (first.slot, 1),
        (second.slot, 0),
    ]


def test_a_lease_is_finished_with_its_own_attempt_or_not_at_all(store: Store) -> None:
    lease = leased(store)
    for wrong in (replace(attempt_for(lease), number=1), replace(attempt_for(lease), slot="other/0")):
        with pytest.raises(ValueError, match="the lease is of"):
            store.finish(lease, wrong)
    store.finish(lease, attempt_for(lease))
    with pytest.raises(Fenced):
        store.finish(lease, attempt_for(lease))
    assert len(list(store.attempts())) == 1


def test_reading_attempts_does_not_stand_in_the_way_of_writing(store: Store) -> None:
    finish(store)
    finish(store)
    seen = 0
    for _ in store.attempts():
        finish(store)
        seen += 1
    assert (seen, store.progress().ok) == (2, 4)


# Append-only, whoever writes.


@pytest.mark.parametrize("table", schema.SEALED)
def test_no_row_can_be_changed_deleted_or_replaced(table: str, store: Store, path: Path) -> None:
    finish(store)
    store.add_canary({})
    store.add_event("kind", "detail")
    columns = ", ".join(schema.SEALED[table])
    statements = (
        f"UPDATE {table} SET checksum = ''",
        f"DELETE FROM {table}",
        f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
        f"INSERT OR REPLACE INTO {table} (id, {columns}, checksum) SELECT 1, {columns}, '' FROM {table}",
    )
    with closing(sqlite3.connect(path)) as stranger:
        for writer in (store.connection, stranger):
            for statement in statements:
                with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
                    writer.execute(statement)
            writer.rollback()
    assert verify(path) == []


def test_a_result_cannot_be_replaced_under_a_new_id(store: Store, path: Path) -> None:
    finish(store)
    columns = ", ".join(schema.SEALED["attempt"])
    with closing(sqlite3.connect(path)) as stranger, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        stranger.execute(f"INSERT OR REPLACE INTO attempt ({columns}, checksum) SELECT {columns}, '' FROM attempt")


# Damage.


def test_every_flipped_byte_of_a_payload_is_detected(store: Store, path: Path) -> None:
    finish(store)
    finish(store)
    (payload,) = store.connection.execute("SELECT payload FROM attempt WHERE id = 2").fetchone()
    assert len(payload) > 100
    for at in range(0, len(payload), 11):
        tamper(path, ("UPDATE attempt SET payload = ? WHERE id = 2", (flipped(payload, at),)))
        read = store.attempts()
        assert next(read).number == 0
        with pytest.raises(Damaged, match=r"attempt 2 .* is damaged"):
            next(read)
        assert [line for line in verify(path) if "attempt 2" in line]
    tamper(path, ("UPDATE attempt SET payload = ? WHERE id = 2", (payload,)))
    assert verify(path) == []


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE attempt SET outcome = 'error' WHERE id = 1", "attempt 1"),
        ("UPDATE attempt SET outcome = 'xk' WHERE id = 1", "attempt 1"),
        ("UPDATE attempt SET tags = '[\"noise\"]' WHERE id = 1", "attempt 1"),
        ("UPDATE attempt SET tags = '7' WHERE id = 1", "attempt 1"),
        ("UPDATE attempt SET number = 1 WHERE id = 1", "attempt 1"),
        ("UPDATE attempt SET checksum = 'aa' WHERE id = 1", "attempt 1"),
        ("UPDATE schedule SET seed = seed + 1 WHERE id = 3", "schedule 3"),
        ("UPDATE cell SET body = replace(body, 'linen', 'haiku') WHERE id = 1", "cell 1"),
        ("UPDATE campaign SET body = replace(body, 'smoke', 'other')", "campaign 1"),
        ("UPDATE stratum SET body = '{}'", "stratum 1"),
        ("UPDATE event SET body = '{}'", "event 1"),
        ("UPDATE canary SET body = '{}'", "canary 1"),
        ("DELETE FROM attempt WHERE id = 1", "attempt: 2 rows were appended, 1 are there"),
        ("DELETE FROM attempt WHERE id = 2", "attempt: 2 rows were appended, 1 are there"),
        ("DELETE FROM schedule WHERE id = 6", "schedule: 6 rows were appended, 5 are there"),
        ("DELETE FROM cell WHERE id = 1", "cell"),
        ("DELETE FROM campaign", "campaign"),
        ("UPDATE attempt SET slot = 'nowhere/0' WHERE id = 1", "attempt 1 belongs to a schedule that is not there"),
    ],
)
def test_whatever_is_changed_or_deleted_is_noticed_and_not_returned(
    statement: str, named: str, store: Store, path: Path
) -> None:
    finish(store)
    finish(store)
    store.add_event("kind", "detail")
    store.add_canary({"x": 1})
    tamper(path, statement)
    assert any(named in problem for problem in verify(path)), verify(path)
    with pytest.raises(Damaged):
        content(store)


def test_an_outcome_nobody_writes_stops_claims(store: Store, path: Path) -> None:
    finish(store)
    tamper(path, "UPDATE attempt SET outcome = 'xk'")
    with pytest.raises(Damaged, match="outcome 'xk'"):
        store.lease("me", 1.0)


def test_a_missing_trigger_is_noticed(path: Path) -> None:
    create(path, CAMPAIGN, CELLS, []).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DROP TRIGGER attempt_keep")
    with pytest.raises(Damaged, match="triggers have been changed"):
        open_store(path)


def check_flips(path: Path, step: int) -> None:
    """After any single flip in the file a store says what it said before, or says that it is damaged."""
    with create(path, CAMPAIGN, CELLS, slots_of(2)) as store:
        finish(store)
        finish(store, "error")
        said = content(store)
        (payload,) = store.connection.execute("SELECT payload FROM attempt WHERE id = 1").fetchone()
    sound = path.read_bytes()
    place = sound.index(payload)
    inside = range(place, place + len(payload))
    chosen = {*range(0, len(sound), step), *inside[:: max(1, step // 100)]}
    detected = {at for at in chosen if not says(path, flipped(sound, at), said)}
    assert detected >= chosen & set(inside)
    assert len(detected - set(inside)) > 10


def flipped(data: bytes, at: int) -> bytes:
    return bytes([*data[:at], data[at] ^ (1 << random.Random(at).randrange(8)), *data[at + 1 :]])


def says(path: Path, data: bytes, said: tuple[Any, ...]) -> bool:
    """Whether a store with these bytes can be read; if so it must say what it said before."""
    path.write_bytes(data)
    try:
        with open_store(path, readonly=True) as store:
            assert content(store) == said
    except InputError:
        return False
    return True


def test_a_flip_anywhere_in_the_file_never_changes_what_is_said(path: Path) -> None:
    check_flips(path, step=401)


@pytest.mark.slow
def test_many_flips_anywhere_in_the_file_never_change_what_is_said(path: Path) -> None:
    check_flips(path, step=23)


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.3, 0.6, 0.99])
def test_a_truncated_store_is_refused(share: float, path: Path) -> None:
    create(path, CAMPAIGN, CELLS, slots_of(50)).close()
    size = path.stat().st_size
    os.truncate(path, int(size * share))
    with pytest.raises(InputError, match=r"damaged|not a campaign store"):
        open_store(path)
    assert verify(path)


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        open_store(tmp_path / "missing.db")
    with pytest.raises(InputError, match="is not a file"):
        open_store(tmp_path)
    assert not (tmp_path / "missing.db").exists()
    text = tmp_path / "notes.txt"
    text.write_text("SQLite format 3")
    with pytest.raises(InputError, match="not a campaign store"):
        open_store(text)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other, other:
        other.execute("CREATE TABLE x (y)")
    with pytest.raises(InputError, match="no campaign store"):
        open_store(tmp_path / "other.db")


# Layouts of other versions.


def test_a_store_of_a_newer_version_is_refused_untouched(path: Path) -> None:
    create(path, CAMPAIGN, CELLS, slots_of(1)).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    before = path.read_bytes()
    for readonly in (False, True):
        with pytest.raises(InputError, match=rf"layout {schema.VERSION + 1} .* knows {schema.VERSION}; upgrade"):
            open_store(path, readonly=readonly)
    assert path.read_bytes() == before


def first_layout(path: Path, attempt: Attempt) -> None:
    """A store as the first version wrote it."""
    with closing(connection.connect(path, "mode=rwc")) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        schema.migrate(raw, 1)
        schema.insert(raw, "campaign", {"body": '{"note":"old"}'})
        schema.insert(raw, "stratum", {"number": 0, "body": "{}"})
        schema.insert(raw, "cell", {"name": CELLS[0].id, "body": canonical(asdict(CELLS[0]))})
        stores._append_slots(raw, [Slot(CELLS[0].id, 0, 5, 0), Slot(CELLS[0].id, 1, 6, 1)])
        schema.insert(raw, "attempt", stores.packed(attempt))


def test_a_store_of_the_first_layout_is_migrated_with_all_it_holds(path: Path) -> None:
    attempt = attempt_for(Lease(Slot(CELLS[0].id, 0, 5, 0), 0, 1))
    first_layout(path, attempt)
    old = path.read_bytes()
    with open_store(path, readonly=True) as store:
        assert (store.campaign(), list(store.attempts()), store.events()) == ({"note": "old"}, [attempt], [])
        with pytest.raises(OSError, match="cannot be written"):
            store.add_event("kind", "detail")
    assert path.read_bytes() == old
    with open_store(path) as store:
        assert list(store.attempts()) == [attempt]
        assert leased(store).slot.block == 1
        store.add_event("migrated", 1)
    with open_store(path) as store:
        assert schema.version_of(store.connection) == schema.VERSION == 2
        assert [event.kind for event in store.events()] == ["migrated"]
    assert verify(path) == []


def test_migrations_are_never_edited() -> None:
    written = [hashlib.sha256("\n".join(steps).encode()).hexdigest()[:16] for steps in schema.MIGRATIONS]
    assert written == ["210ca4f8d1c821dc", "d3a591de813d7f93"]


def test_a_migration_never_leads_back(store: Store) -> None:
    schema.migrate(store.connection, 1)
    assert schema.version_of(store.connection) == schema.VERSION


# The disk.

MOUNTS = """/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/local xfs rw 0 0
//server/x /mnt/with\\040space cifs rw 0 0
me@host: /mnt/ssh fuse.sshfs rw 0 0
portal /mnt/portal fuse.portal rw 0 0
lower /layered 9p rw 0 0
upper /layered tmpfs rw 0 0
nonsense
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/srv/a.db", "ext4"),
        ("/home/me/a.db", "nfs4"),
        ("/homestead/a.db", "ext4"),
        ("/home/local/a.db", "xfs"),
        ("/mnt/with space/a.db", "cifs"),
        ("/mnt/ssh/a.db", "fuse.sshfs"),
        ("/mnt/portal/a.db", "fuse.portal"),
        ("/layered/a.db", "tmpfs"),
    ],
)
def test_network_file_systems_are_refused(place: str, kind: str) -> None:
    assert file_system(Path(place), MOUNTS) == kind
    if kind in ("nfs4", "cifs", "fuse.sshfs"):
        with pytest.raises(InputError, match=f"network file system \\({kind}\\).*use a local disk"):
            check_local(Path(place), MOUNTS)
    else:
        check_local(Path(place), MOUNTS)


@pytest.mark.skipif(not Path("/proc/mounts").exists(), reason="the system has no table of mounts")
def test_creating_and_opening_look_where_the_file_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(path, CAMPAIGN, CELLS, []).close()
    here = file_system(path, Path("/proc/mounts").read_text())
    monkeypatch.setattr(connection, "NETWORK", {here})
    with pytest.raises(InputError, match="network file system"):
        open_store(path)
    with pytest.raises(InputError, match="network file system"):
        create(path.with_name("new.db"), CAMPAIGN, CELLS, [])


def test_a_read_only_store_says_so(store: Store, path: Path) -> None:
    with open_store(path, readonly=True) as reader:
        for act in (lambda: reader.lease("me", 1.0), lambda: reader.add_canary({})):
            with pytest.raises(OSError, match="cannot be written") as caught:
                act()
            assert caught.value.errno == errno.EROFS


def test_a_full_disk_is_said_and_costs_nothing_stored(store: Store, path: Path) -> None:
    done = [finish(store).slot.id]
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    lease = leased(store)
    large = replace(attempt_for(lease), log=random.Random(0).randbytes(30_000).hex())
    with pytest.raises(OSError, match="the disk is full") as caught:
        store.finish(lease, large)
    assert caught.value.errno == errno.ENOSPC
    assert [a.slot for a in store.attempts()] == done
    with open_store(path) as other:
        assert [a.slot for a in other.attempts()] == done
    store.connection.execute("PRAGMA max_page_count = 1000000")
    store.finish(lease, large)
    assert [a.slot for a in store.attempts()] == [*done, lease.slot.id]
    assert verify(path) == []


def in_small_disk(folder: Path, code: str, *arguments: str) -> str:
    """Output of Python code run where `folder` is a disk of 600 kB of its own; skips where none can be made."""
    folder.mkdir()
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    prepare = f"mount -t tmpfs -o size=600k none '{folder}' || exit 77; exec \"$@\""
    if not shutil.which("unshare"):
        pytest.skip("no unshare here; apt-get install -y util-linux")
    command = [*mount, prepare, "sh", sys.executable, "-c", code, str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=WRITER.parent, timeout=600)
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("no disk can be mounted here; run the tests as root, outside a container")
    assert done.returncode == 0, done.stderr
    return done.stdout


FILL = """
import random, sys
from dataclasses import replace
from pathlib import Path
from store_writer import attempt_for
from test_store import CAMPAIGN, CELLS, slots_of
from benchback.measure.store import create, open_store
from benchback.measure.verify import verify
path, ballast = Path(sys.argv[1]) / "campaign.db", Path(sys.argv[1]) / "ballast"
ballast.write_bytes(bytes(100_000))
done = []
with create(path, CAMPAIGN, CELLS, slots_of(50)) as store:
    try:
        while lease := store.lease("me", 60.0):
            log = random.Random(lease.fence).randbytes(10_000).hex()
            store.finish(lease, replace(attempt_for(lease), log=log))
            done.append(lease.slot.id)
    except OSError as error:
        print(error.errno, error.strerror)
    assert [a.slot for a in store.attempts()] == done
ballast.unlink()
with open_store(path) as store:
    assert [a.slot for a in store.attempts()] == done
assert verify(path) == []
print(len(done))
"""


def test_a_disk_that_really_fills_up_costs_nothing_stored(tmp_path: Path) -> None:
    said, count = in_small_disk(tmp_path / "disk", FILL).splitlines()
    assert said.startswith(f"{errno.ENOSPC} the disk is full; free some space")
    assert 2 <= int(count) < 100


CREATE = """
import os, sys
from pathlib import Path
from test_store import CAMPAIGN, CELLS, slots_of
from benchback.measure.store import create
from benchback.measure.verify import verify
folder = Path(sys.argv[1])
path, ballast = folder / "campaign.db", folder / "ballast"
for free in range(0, 400_000, 8192):
    ballast.write_bytes(b"")
    space = os.statvfs(folder)
    ballast.write_bytes(bytes(max(0, space.f_bavail * space.f_frsize - free)))
    try:
        create(path, CAMPAIGN, CELLS, slots_of(50)).close()
    except OSError as error:
        assert os.listdir(folder) == ["ballast"], os.listdir(folder)
        print(error.errno)
    else:
        assert verify(path) == []
        print("made")
        for part in folder.glob("campaign.db*"):
            part.unlink()
"""


def test_on_a_full_disk_a_store_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    outcomes = in_small_disk(tmp_path / "disk", CREATE).split()
    assert set(outcomes) == {str(errno.ENOSPC), "made"}


READ_ONLY = """
import os, subprocess, sys
from pathlib import Path
from test_store import CAMPAIGN, CELLS, slots_of
from benchback.measure.store import create, open_store
path = Path(sys.argv[1]) / "campaign.db"
create(path, CAMPAIGN, CELLS, slots_of(2)).close()
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
with open_store(path, readonly=True) as store:
    print(len(store.slots()))
try:
    open_store(path).lease("me", 60.0)
except OSError as error:
    print(error.strerror)
"""


def test_a_store_on_a_read_only_disk_can_be_read(tmp_path: Path) -> None:
    slots, refusal = in_small_disk(tmp_path / "disk", READ_ONLY).splitlines()
    assert slots == "4"
    assert "make the file and its folder" in refusal


# Many at once, and sudden ends.


def test_whoever_is_in_the_way_is_waited_for(store: Store, path: Path) -> None:
    asked = 0
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        store.connection.execute("BEGIN IMMEDIATE")

        def begin() -> sqlite3.Cursor:
            nonlocal asked
            asked += 1
            if asked == 3:
                store.connection.execute("ROLLBACK")
            return other.execute("BEGIN IMMEDIATE")

        patiently(begin, path)
        assert asked == 3


def test_one_who_never_makes_way_is_named_in_words(store: Store, path: Path) -> None:
    store.connection.execute("BEGIN IMMEDIATE")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        with pytest.raises(OSError, match="kept the store busy for 0 s; stop it") as caught:
            patiently(lambda: other.execute("BEGIN IMMEDIATE"), path, patience_s=0.0)
        assert caught.value.errno == errno.EBUSY


def writer(path: Path, owner: str, later_s: float = 0.0) -> subprocess.Popen:
    command = [sys.executable, str(WRITER), str(path), owner, str(later_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def acknowledged(output: str) -> list[tuple[str, int]]:
    """Lines that were finished before the end came."""
    lines = [line.split() for line in output.splitlines(keepends=True) if line.endswith("\n")]
    return [(slot, int(number)) for slot, number in lines]


def killed(path: Path, owner: str, later_s: float, generator: random.Random) -> list[tuple[str, int]]:
    """What a writer acknowledged before it was killed at a random point."""
    process = writer(path, owner, later_s)
    assert process.stdout is not None
    heard = "".join(process.stdout.readline() for _ in range(generator.randrange(5)))
    # Not to wait for anything: the moment of the kill is random.
    time.sleep(generator.uniform(0.0, 0.008))
    process.kill()
    return acknowledged(heard + process.communicate()[0])


def check_kills(path: Path, kills: int) -> None:
    generator, slots = random.Random(kills), slots_of(kills * 4)
    create(path, CAMPAIGN, CELLS, slots).close()
    told = [ack for round in range(kills) for ack in killed(path, f"w{round}", round * 1e4, generator)]
    with open_store(path) as store:
        found = [(a.slot, a.number) for a in store.attempts()]
        assert not set(told) - set(found)
        assert len(found) == len(set(found))
        assert store.progress().open + store.progress().running > 0, "the campaign ended before the kills did"
    rest = writer(path, "last", kills * 1e4)
    output, errors = rest.communicate()
    assert (rest.returncode, errors) == (0, "")
    with open_store(path) as store:
        table = {(a.slot, a.number): a for a in store.attempts()}
        assert len(list(store.attempts())) == len(table)
    # An unbroken run makes one attempt at every slot, with these results.
    unbroken = {(slot.id, 0): attempt_for(Lease(slot, 0, 0)) for slot in slots}
    assert table == unbroken
    assert {*told, *acknowledged(output)} <= set(table)
    assert len(told) > kills / 2, "the kills came before anything was acknowledged"
    assert verify(path) == []


def test_nothing_acknowledged_is_lost_when_a_coordinator_is_killed(path: Path) -> None:
    check_kills(path, 8)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_two_hundred_kills(path: Path) -> None:
    check_kills(path, 200)


def check_coordinators(path: Path, blocks: int) -> None:
    create(path, CAMPAIGN, CELLS, slots_of(blocks)).close()
    processes = [writer(path, f"w{number}") for number in range(4)]
    outputs = [process.communicate() for process in processes]
    assert [(process.returncode, errors) for process, (_, errors) in zip(processes, outputs, strict=True)] == [
        (0, "")
    ] * 4
    told = Counter(ack for output, _ in outputs for ack in acknowledged(output))
    assert told == Counter((slot.id, 0) for slot in slots_of(blocks))
    with open_store(path) as store:
        assert Counter((a.slot, a.number) for a in store.attempts() if a.outcome == "ok") == told
        assert store.progress() == Counts(total=2 * blocks, ok=2 * blocks, failed=0, running=0)
    assert verify(path) == []


def test_four_coordinators_share_a_store(path: Path) -> None:
    check_coordinators(path, blocks=60)


@pytest.mark.slow
def test_four_coordinators_share_a_store_of_two_thousand_slots(path: Path) -> None:
    check_coordinators(path, blocks=1000)


# What the rows say together.


def recorded(seed: int, **ledger: Any) -> Record:
    fields = {"seed": seed, "parameters": 9, "calls": 10, "iterations_per_call": 1, "env_steps_per_call": 128}
    return Record({"total_s": [1.0]}, {}, fields | ledger, {})


def with_ledgers(path: Path, *ledgers: dict[str, Any]) -> list[str]:
    """Problems of a store whose attempts, in the order of the schedule, have these ledgers."""
    with create(path, CAMPAIGN, CELLS, slots_of(2)) as store:
        for ledger in ledgers:
            lease = leased(store)
            record = recorded(**{"seed": lease.slot.seed} | ledger)
            store.finish(lease, replace(attempt_for(lease), record=record))
    return verify(path)


def test_runs_may_differ_in_what_is_compared_and_what_follows_from_it(path: Path) -> None:
    chunked = {"backend": "nnx", "unit": "chunk", "calls": 1, "iterations_per_call": 10, "env_steps_per_call": 1280}
    assert with_ledgers(path, {"backend": "linen", "compiles": 3}, chunked) == []


@pytest.mark.parametrize(
    ("ledger", "field"),
    [
        ({"parameters": 10}, "parameters is 9 and 10"),
        ({"dtype": "float16"}, "dtype is None and 'float16'"),
        ({"calls": 11}, "iterations is 10 and 11"),
        ({"iterations_per_call": 10, "calls": 1}, "env_steps_per_iteration is 128.0 and 12.8"),
    ],
)
def test_runs_of_a_block_that_did_different_work_are_not_compared(
    ledger: dict[str, Any], field: str, path: Path
) -> None:
    (problem,) = with_ledgers(path, {}, ledger)
    assert "must not be compared" in problem
    assert field in problem


def test_ledgers_of_different_blocks_are_not_compared(path: Path) -> None:
    other = {"parameters": 10}
    assert with_ledgers(path, {}, {}, other, other) == []


def test_a_run_with_another_seed_than_its_slot_is_a_problem(path: Path) -> None:
    assert any("used seed 7, the schedule says 1000" in problem for problem in with_ledgers(path, {"seed": 7}))


def test_a_seed_used_twice_by_a_cell_is_a_problem(path: Path) -> None:
    cell = CELLS[0].id
    create(path, CAMPAIGN, CELLS, [Slot(cell, 0, 5, 0), Slot(cell, 1, 5, 1)]).close()
    assert verify(path) == [f"slots {cell}/0 and {cell}/1 have the same seed 5"]


def test_variants_of_a_block_with_different_seeds_are_a_problem(path: Path) -> None:
    create(path, CAMPAIGN, CELLS, [Slot(CELLS[0].id, 0, 5, 0), Slot(CELLS[1].id, 0, 6, 1)]).close()
    (problem,) = verify(path)
    assert "are of one block with seeds 5 and 6" in problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"record": None}, "is ok without a record"), ({"outcome": "error"}, "is error with a record")],
)
def test_a_record_comes_with_ok_and_only_with_ok(change: dict[str, Any], problem: str, store: Store) -> None:
    lease = leased(store)
    store.finish(lease, replace(attempt_for(lease), **change))
    assert any(problem in line for line in verify(store.path))


def test_an_attempt_at_a_closed_slot_is_a_problem(store: Store) -> None:
    lease = finish(store)
    again = replace(attempt_for(lease), number=1)
    schema.insert(store.connection, "attempt", stores.packed(again))
    assert any("made though the slot was closed" in line for line in verify(store.path))


def test_verify_says_what_is_no_store(tmp_path: Path) -> None:
    (problem,) = verify(tmp_path / "missing.db")
    assert "is not a file" in problem


def test_opening_a_store_imports_no_framework() -> None:
    code = "import sys, benchback.measure.store, benchback.measure.verify, benchback.measure.wire; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"jax", "torch", "polars", "numpy"} & set(loaded)
