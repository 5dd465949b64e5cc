"""Plain tables, bars and JSON: what all that is shown is made of."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


@contextmanager
def measuring() -> Iterator[Callable[[str, int, int], None]]:
    """A bar, or lines where there is no terminal, for work that tells what it does, how much is done and of what."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: console.print(f"{done} of {total}: {what}", highlight=False, soft_wrap=True)
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("preparing", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    """A plain table."""
    made = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        made.add_column(column, overflow="fold", no_wrap=place == 0)  # what a row is about is never broken
    for row in rows:
        made.add_row(*row)
    return made


def jsonable(row: dict[str, Any]) -> dict[str, Any]:
    """The row with NaN, which JSON does not know, as null."""
    return {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}
