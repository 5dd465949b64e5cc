"""Curves of members, thinned to what a screen can show: a row stands for a bucket of iterations.

Buckets are counted from the first iteration, so they do not depend on where a training was stopped or saved. A row has
the mean of each metric over those iterations of the bucket in which it was finite, and how many these were.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

POINTS = 2_000
"""Rows of a curve at most: a point for each column of a wide screen."""
COUNT = "_count"
"""End of the name of the column with the number of iterations in which a metric was finite."""

Columns = dict[str, np.ndarray]


def likely_thin(iterations: int) -> int:
    """Iterations per row: as few as leave a curve no more rows than a screen has columns."""
    return -(-iterations // POINTS)


@dataclass
class Buckets:
    """Sums of every member over the iterations of the bucket that is open."""

    thin: int
    """Iterations of a bucket."""
    done: int = 0
    """The last iteration added."""
    open: int = 0
    """Iterations in the open bucket: fewer than since it began where training went on in a new folder."""
    sums: Columns = field(default_factory=dict)
    counts: Columns = field(default_factory=dict)
    dtypes: dict[str, Any] = field(default_factory=dict)

    def add(self, last: int, metrics: Mapping[str, np.ndarray]) -> Iterator[Columns]:
        """Take metrics of shape [iterations, members] that end with iteration `last`; the rows of every full bucket."""
        length = len(next(iter(metrics.values())))
        assert self.done == last - length
        place = 0
        while place < length:
            end = min(length, place + self.thin - self.done % self.thin)
            self._sum({name: x[place:end] for name, x in metrics.items()})
            self.done, self.open, place = self.done + end - place, self.open + end - place, end
            if self.done % self.thin == 0:
                yield self._rows()
                self.sums, self.counts, self.open = {}, {}, 0

    def rest(self) -> Columns | None:
        """The rows of the open bucket, if it has any iteration; it stays open."""
        return self._rows() if self.open else None

    def _sum(self, metrics: Mapping[str, np.ndarray]) -> None:
        for name, x in metrics.items():
            finite = np.isfinite(x)
            total, count = np.where(finite, x, 0.0).sum(axis=0, dtype=np.float64), finite.sum(axis=0, dtype=np.uint32)
            self.sums[name], self.counts[name] = self.sums.get(name, 0.0) + total, self.counts.get(name, 0) + count
            self.dtypes[name] = np.result_type(x.dtype, np.float32)

    def _rows(self) -> Columns:
        size = len(next(iter(self.sums.values())))
        columns = {"iteration": np.full(size, self.done, np.uint32), "iterations": np.full(size, self.open, np.uint32)}
        columns["member"] = np.arange(size, dtype=np.uint32)
        for name, total in sorted(self.sums.items()):
            count = self.counts[name]
            columns[name] = (total / np.where(count, count, np.nan)).astype(self.dtypes[name])
            columns[f"{name}{COUNT}"] = count.astype(np.uint32)
        return columns

    def stored(self) -> Columns:
        """What the open bucket has so far, exactly; `restored` is its inverse."""
        sums = {f"sum/{name}": x for name, x in self.sums.items()}
        counts = {f"count/{name}": x.astype(np.uint32) for name, x in self.counts.items()}
        dtypes = {f"dtype/{name}": np.zeros(len(x), self.dtypes[name]) for name, x in self.sums.items()}
        return sums | counts | dtypes | {"open/": np.full(len(next(iter(self.sums.values()))), self.open)}

    def restored(self, stored: Mapping[str, np.ndarray], done: int) -> "Buckets":
        """These buckets after so many iterations, with what was stored of the open one."""
        parts: dict[str, Columns] = {"sum": {}, "count": {}, "dtype": {}, "open": {}}
        for name, x in stored.items():
            part, _, metric = name.partition("/")
            parts[part][metric] = x
        dtypes = {name: x.dtype for name, x in parts["dtype"].items()}
        return Buckets(self.thin, done, int(parts["open"][""][0]), parts["sum"], parts["count"], dtypes)
