"""Exports: the tables say what the store says, and nothing that is stored can name a file or become a formula."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest
from store_writer import attempt_for
from test_store import CAMPAIGN, CELLS, RUN, slots_of

from benchback.analysis.export import WRITERS, export, harmless
from benchback.errors import InputError
from benchback.measure.record import Cell, Record
from benchback.measure.store import Store, create, open_store
from benchback.measure.verify import verify
from benchback.training.outputs import LIST

HOSTILE = {
    "path": "../../x",
    "absolute": "/tmp/x",
    "script": "</script><script>alert(1)</script>",
    "formula": "=cmd()",
    "plus": "+1",
    "minus": "-1+2",
    "at": "@SUM(A1)",
    "tab": "\t=1",
    "return": "\r=1",
    "line": "\n=1",
    "wide": "\uff1d1",
    "nul": "a\0b",
    "override": "\u202egnp.exe",
    "half": "\ud800",
    "quote": "'; DROP TABLE attempt; --",
    "long": "x" * 10_000,
    "comma": 'a,"b"\r\nc',
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two blocks: a result with two kinds of sample, a failure, a tagged result."""
    with create(tmp_path / "campaign.db", CAMPAIGN, CELLS, slots_of(2)) as store:
        for change in ({"noise": {"steal": 0.5}}, {"outcome": "timeout", "record": None}, {"tags": ("noise",)}):
            lease = store.lease("me", 60.0)
            assert lease is not None
            attempt = replace(attempt_for(lease), **change)
            if attempt.record:
                samples = {"total_s": [1.5, None], "compiles": [2.0, 0.0]}
                attempt = replace(attempt, record=replace(attempt.record, samples=samples, memory={"peak": 7.0}))
            store.finish(lease, attempt)
        yield store


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of an exported table, as its format gives them."""
    if path.suffix == ".parquet":
        return polars.read_parquet(path).to_dicts()
    if path.suffix == ".json":
        return json.loads(path.read_text())
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def text(value: Any) -> str:
    """A value as CSV spells it."""
    return "" if value is None else str(value)


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_runs_have_a_row_per_attempt(format: str, store: Store, tmp_path: Path) -> None:
    runs, *_ = export(store, tmp_path / "out", format)
    first, failed, tagged = rows_of(runs)
    slot = slots_of(2)[0]
    known = {"study": "smoke", "note": "a note", "cell": slot.cell, "group": CELLS[0].group, "block": 0, "attempt": 0}
    known |= {"variant": "linen/jit/phase", "algorithm": "ppo", "env": "gymnax/CartPole-v1", "num_envs": 4}
    known |= {"seed": 1000, "outcome": "ok", "tags": "", "duration_s": 1.0, "timing": "async", "twin": False}
    known |= {
        "noise_steal": 0.5,
        "memory_peak": 7.0,
        "ledger": '{"iterations_per_call":1,"seed":1000}',
        "slot": slot.id,
        "model": "small",
    }
    assert {name: first[name] for name in known} == known
    assert first["mark_finished_s"] == pytest.approx(1000 / 7 + 39)
    assert (failed["outcome"], failed["mark_finished_s"], failed["noise_steal"]) == ("timeout", None, None)
    assert (failed["attempt"], tagged["attempt"], tagged["tags"]) == (0, 1, "noise")


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_samples_have_a_row_per_value(format: str, store: Store, tmp_path: Path) -> None:
    _, samples, _ = export(store, tmp_path / "out", format)
    rows = rows_of(samples)
    assert len(rows) == 8
    assert [(row["call"], row["name"], row["value"]) for row in rows[:4]] == [
        (0, "compiles", 2.0),
        (1, "compiles", 0.0),
        (0, "total_s", 1.5),
        (1, "total_s", None),
    ]
    assert {(row["slot"], row["attempt"]) for row in rows} == {
        (attempt.slot, attempt.number) for attempt in store.attempts() if attempt.record
    }


@pytest.mark.parametrize("table", [0, 1, 2])
def test_all_formats_say_the_same(table: int, store: Store, tmp_path: Path) -> None:
    spelled, plain, columnar = (rows_of(export(store, tmp_path / "out", f)[table]) for f in ("csv", "json", "parquet"))
    assert plain == columnar
    assert spelled == [{name: text(x) for name, x in row.items()} for row in plain]


def hostile_store(path: Path) -> Store:
    cells = [Cell(RUN | {"backend": "linen", "env": name}) for name in HOSTILE.values()]
    store = create(path, CAMPAIGN | {"note": HOSTILE, "study": {"name": "../../x"}}, cells, slots_of(1, cells))
    for name in HOSTILE.values():
        lease = store.lease("me", 60.0)
        assert lease is not None
        attempt = attempt_for(lease)
        assert attempt.record is not None
        marks = {name: -1.0, **attempt.record.marks}
        record = Record({name: [1.0], "total_s": [1.0]}, marks, attempt.record.ledger, {name: 2.0})
        store.finish(lease, replace(attempt, detail=name, log=name, tags=(name,), record=record, noise={name: 0.0}))
        store.add_event(name, name)
        store.add_canary({name: name})
    return store


def test_hostile_names_come_back_as_they_were(tmp_path: Path) -> None:
    names, path = list(HOSTILE.values()), tmp_path / "campaign.db"
    hostile_store(path).close()
    with open_store(path, readonly=True) as store:
        assert store.campaign()["note"] == HOSTILE
        assert [cell.run["env"] for cell in store.cells().values()] == names
        assert [(a.detail, a.log, a.tags) for a in store.attempts()] == [(name, name, (name,)) for name in names]
        assert [{*a.record.samples} for a in store.attempts() if a.record] == [{name, "total_s"} for name in names]
        assert [(e.kind, e.detail) for e in store.events()] == [(name, name) for name in names]
        assert store.canaries() == [{name: name} for name in names]
    assert verify(path) == []


@pytest.mark.parametrize("format", WRITERS)
def test_hostile_names_name_no_file(format: str, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    with hostile_store(folder / "campaign.db") as store:
        written = export(store, folder / "out", format)
    assert written == [folder / "out" / f"{name}.{format}" for name in ("runs", "samples", "ratios")]
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {folder / "campaign.db", folder / "out" / LIST, *written}
    names = [name.encode(errors="backslashreplace").decode() for name in HOSTILE.values()]
    if format != "csv":
        envs = [row["env"].encode(errors="backslashreplace").decode() for row in rows_of(written[0])]
        assert envs == names


def test_no_text_in_a_csv_file_begins_like_a_formula(tmp_path: Path) -> None:
    with hostile_store(tmp_path / "campaign.db") as store:
        files = export(store, tmp_path / "out", "csv")
    formulas = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d")
    for path in files:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        texts = [x for row in [header, *rows] for x in row if x and not is_number(x)]
        assert texts
        assert not [x for x in texts if x.startswith(formulas)]
    envs = [row["env"] for row in rows_of(files[0])]
    assert envs[:4] == ["../../x", "/tmp/x", HOSTILE["script"], "'=cmd()"]


def is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    # "+1" is the hostile text itself: a number of ours never begins so.
    return not value.startswith("+")


def test_numbers_stay_numbers(tmp_path: Path) -> None:
    with hostile_store(tmp_path / "campaign.db") as store:
        runs, *_ = export(store, tmp_path / "out", "csv")
    assert rows_of(runs)[0]["mark_../../x_s"] == "-1.0"
    assert harmless("-1.0") == "'-1.0"


def test_an_export_replaces_its_own_folder_and_no_other(store: Store, tmp_path: Path) -> None:
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_text("keep")
    export(store, out, "json")
    export(store, out, "csv")
    assert {path.name for path in out.iterdir()} == {"runs.csv", "samples.csv", "ratios.csv", LIST}
    (out / "link.csv").symlink_to(precious)
    with pytest.raises(InputError, match=r"holds link\.csv, which benchback export did not write"):
        export(store, out, "parquet")
    assert precious.read_text() == "keep"
    assert len(rows_of(out / "runs.csv")) == 3


@pytest.mark.parametrize("format", WRITERS)
def test_an_empty_campaign_gives_empty_tables(format: str, tmp_path: Path) -> None:
    with create(tmp_path / "campaign.db", CAMPAIGN, CELLS, []) as store:
        assert [rows_of(path) for path in export(store, tmp_path / "out", format)] == [[], [], []]


def test_batches_make_one_table(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_of(export(store, tmp_path / "out", "parquet")[1])
    monkeypatch.setattr("benchback.analysis.export.BATCH", 3)
    assert rows_of(export(store, tmp_path / "out", "parquet")[1]) == whole


def test_an_unknown_format_and_a_file_for_a_folder_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        export(store, tmp_path / "campaign.db", "csv")
    with pytest.raises(InputError, match="choose one of csv, json, parquet"):
        export(store, tmp_path / "out", "xml")
    assert not (tmp_path / "out").exists()
