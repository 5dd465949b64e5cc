"""Shared by the printing of all verbs: tables, a progress bar, durations, and JSON without NaN."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


@contextmanager
def measuring(every: float = 0.0) -> Iterator[Callable[[str, int, int], None]]:
    """Progress callback (what, done, total) shown as a bar, or as lines where there is no terminal.

    `every` is the share of the total between two lines.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        due = 0.0

        def line(what: str, done: int, total: int) -> None:
            nonlocal due
            if done >= due:
                console.print(f"{done} of {total}: {what}", highlight=False, soft_wrap=True)
                due = done + every * total

        yield line
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


NUMBER = re.compile(r"(\[/?[a-z ]+\])*[-+]?[\d,.]+( ?[%x])?(\[/?[a-z ]+\])*|-?")
"""A number, marked up or not, or the dash where there is none."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its words, and how wide it is if no word, or no cell, is broken."""

    title: str
    cells: tuple[Text, ...]
    numbers: bool

    @property
    def narrowest(self) -> int:
        """Characters of its longest word; a number is one word with its unit."""
        whole = (cell.plain for cell in self.cells)
        words = whole if self.numbers else (word for cell in whole for word in cell.split())
        return max(map(len, (*self.title.split(), *words)), default=0)

    @property
    def widest(self) -> int:
        """Characters of its longest cell; the title may be broken between words."""
        return max([self.narrowest, *(len(cell) for cell in self.cells)])


@dataclass(frozen=True)
class PlainTable:
    """A table that fits the terminal: cells are broken between words only.

    Where not even the words fit beside each other, every row becomes a paragraph.
    """

    title: str
    columns: tuple[Column, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text]:
        for padding in (1, 0):
            between = len(self.columns) * (1 + padding)
            if widths := fitted(self.columns, options.max_width - between):
                yield Text("")
                yield self._table(widths, padding)
                return
        yield from self._paragraphs()

    def _table(self, widths: Sequence[int], padding: int) -> Table:
        style = {"box": box.SIMPLE_HEAD, "padding": (0, padding, 0, 0), "show_edge": False}
        made = Table(title=self.title, title_justify="left", **style)
        for place, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            made.add_column(column.title, justify="right" if column.numbers and place else "left", width=width)
        for row in zip(*(column.cells for column in self.columns), strict=True):
            made.add_row(*row)
        return made

    def _paragraphs(self) -> Iterator[Text]:
        yield Text(f"\n{self.title}", style="italic")
        for row in zip(*(column.cells for column in self.columns), strict=True):
            yield row[0]
            for column, cell in list(zip(self.columns, row, strict=True))[1:]:
                if cell.plain:
                    yield Text("  ").append(column.title).append(": " if column.title else "").append_text(cell)


def fitted(columns: Sequence[Column], room: int) -> list[int] | None:
    """Widths that add up to at most `room` and break no word; None if there are none.

    What is left beyond the words goes, a character at a time, to the column whose cells take the most lines.
    """
    widths = [column.narrowest for column in columns]
    if sum(widths) > room:
        return None
    wanted = [column.widest for column in columns]
    for _ in range(min(room, sum(wanted)) - sum(widths)):
        lines = [-(-want // width) if want else 0 for want, width in zip(wanted, widths, strict=True)]
        widths[lines.index(max(lines))] += 1
    return widths


def table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> PlainTable:
    """A plain table; where the terminal is narrow, cells are broken between words, numbers and words never."""
    rows = list(rows)
    made = []
    for place, column in enumerate(columns):
        cells = [row[place] for row in rows]
        numbers = bool(cells) and all(map(NUMBER.fullmatch, cells))
        made.append(Column(column, tuple(Text.from_markup(cell) for cell in cells), numbers))
    return PlainTable(title, tuple(made))


def short_envs(envs: Sequence[str]) -> tuple[str, list[str]]:
    """The suite that all environments share, for a title, and their names without it; else none, and the ids."""
    suites = {env.partition("/")[0] for env in envs}
    if len(suites) != 1 or not all("/" in env for env in envs):
        return "", list(envs)
    return f"{suites.pop()}/", [env.partition("/")[2] for env in envs]


def jsonable(row: dict[str, Any]) -> dict[str, Any]:
    """The row with NaN, which JSON does not have, as null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}


def hours(seconds: float) -> str:
    """`42 s`, `12 min` or `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
