"""Time left of a campaign, estimated from the runs that are done."""

import statistics
from collections.abc import Iterable, Sequence


def time_left(runs: int, durations: Iterable[Sequence[float]]) -> tuple[float, float] | None:
    """Estimated seconds of so many runs, and their standard error; None without any duration.

    `durations` has the seconds of the runs of each cell. The mean of the cells' medians stands for a run; with one cell
    alone its error is taken to be half of it.
    """
    medians = [statistics.median(values) for values in durations if len(values)]
    if not medians:
        return None
    mean = statistics.fmean(medians)
    error = statistics.stdev(medians) / len(medians) ** 0.5 if len(medians) > 1 else mean / 2
    return runs * mean, runs * error
