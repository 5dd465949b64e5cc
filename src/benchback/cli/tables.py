"""Shared by the printing of all verbs: tables, a progress bar, durations, and JSON without NaN."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
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


def table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    """A plain table; where the terminal is narrow, words are broken, but neither numbers nor the first column."""
    rows = list(rows)
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, column in enumerate(columns):
        cells = [row[place] for row in rows]
        numbers = bool(cells) and all(map(NUMBER.fullmatch, cells))
        word = max(map(len, column.split()), default=0)
        # A fixed width: rich would shrink the widest column first, which is the name of the row.
        whole = max([word, *(len(Text.from_markup(cell)) for cell in cells)]) if numbers or not place else None
        justify = "right" if numbers and place else "left"
        made.add_column(column, overflow="fold", justify=justify, width=whole, min_width=min(10, word))
    for row in rows:
        made.add_row(*row)
    return made


def jsonable(row: dict[str, Any]) -> dict[str, Any]:
    """The row with NaN, which JSON does not have, as null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}


def hours(seconds: float) -> str:
    """`42 s`, `12 min` or `3.4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
