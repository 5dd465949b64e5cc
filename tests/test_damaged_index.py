"""A damaged index: SQLite reads on where a table would fail its checksums, so it must be noticed before that."""

import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import campaign_double as double
import pytest

from benchback import cli
from benchback.measure.store import Damaged, open_store
from benchback.measure.verify import verify

INDEX_PAGES = (0x02, 0x0A)
"""First byte of an interior and of a leaf page of an index (the file format of SQLite, 1.6)."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a complete campaign."""
    path = tmp_path_factory.mktemp("sound") / "double.sqlite"
    assert double.work(path, study=double.study(gammas=(0.9,), max_blocks=2))
    return path.read_bytes()


def index_cells(data: bytes) -> list[range]:
    """Where each page of an index has its cells, in bytes of the file."""
    page_bytes = int.from_bytes(data[16:18], "big")
    starts = [at for at in range(0, len(data), page_bytes) if at and data[at] in INDEX_PAGES]
    return [range(at + int.from_bytes(data[at + 5 : at + 7], "big"), at + page_bytes) for at in starts]


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@pytest.fixture
def damaged(sound: bytes, tmp_path: Path) -> Path:
    """A store with a flipped bit in the newest entry of every index that has any."""
    path, data = tmp_path / "damaged.sqlite", sound
    for cells in index_cells(sound):
        if cells:
            data = flipped(data, cells.start + 6, 0)
    path.write_bytes(data)
    return path


def test_a_flip_in_an_index_is_named_refused_and_mended(sound: bytes, tmp_path: Path) -> None:
    path, generator, noticed = tmp_path / "flipped.sqlite", random.Random(0), 0
    places = [(generator.choice(cells), bit) for cells in index_cells(sound) if cells for bit in range(8)]
    assert len(places) > 30
    for place in places:
        path.write_bytes(flipped(sound, *place))
        problems = verify(path)
        if not problems:  # in a cell no longer used: SQLite reads what it read before
            open_store(path).close()
            continue
        noticed += 1
        assert "is damaged" in problems[0]
        assert "restore" in problems[-1]
        for readonly in (True, False):
            with pytest.raises(Damaged, match="is damaged"):
                open_store(path, readonly=readonly)
        if "REINDEX" in problems[-1]:
            with closing(sqlite3.connect(path)) as raw:
                raw.execute("REINDEX")
            assert verify(path) == []
    assert noticed > len(places) / 2


def test_damage_to_index_and_row_needs_a_copy(damaged: Path) -> None:
    assert "REINDEX" in verify(damaged)[-1]
    data = damaged.read_bytes()
    damaged.write_bytes(flipped(data, data.index(b'"backend":"linen"') + 12, 1))
    problems = verify(damaged)
    assert any("its checksum does not match" in line for line in problems)
    assert problems[-1] == "restore the store from a copy"


def test_a_campaign_is_not_continued_on_a_damaged_index(damaged: Path) -> None:
    before = damaged.read_bytes()
    with pytest.raises(Damaged, match=r"damaged\.sqlite is damaged"):
        double.work(damaged, study=double.study(gammas=(0.9,), max_blocks=2))
    assert damaged.read_bytes() == before


@pytest.mark.parametrize(
    "verb", [("status",), ("list-runs",), ("show", "x/0"), ("export",), ("report",), ("verify",), ("run",)]
)
def test_every_verb_says_that_an_index_is_damaged_and_shows_nothing(
    verb: tuple[str, ...],
    damaged: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *rest = verb
    arguments = [name, "smoke", "--store", str(damaged)] if name == "run" else [name, str(damaged), *rest]
    monkeypatch.setattr(sys, "argv", ["benchback", *arguments])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchback.cli.running.on_stop", not_asked)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert ended.value.code == (1 if name == "verify" else 2)
    said = printed.out if name == "verify" else printed.err
    assert "damaged" in said
    assert "REINDEX" in said or "`benchback verify" in said
    assert name == "verify" or not printed.out
    assert [path.name for path in tmp_path.iterdir() if "damaged.sqlite" not in path.name] == []


def not_asked() -> Callable[[], bool]:
    return lambda: False
