"""What the measurements say, and how surely: pure functions on arrays, every random draw from a Generator given.

`ratios` estimates, `verdicts` decides, `steady` finds where warm-up ends, `breakeven` when it has paid, `returns`
summarises learning, `slopes` looks for leaks, `published` recomputes the tables of benchback-rl by its own formulas.
The tests simulate campaigns with known effects and hold false alarms, coverage and power to what is promised here.
Importing this imports neither scipy nor ruptures; the functions that need them do.
"""

from benchback.stats.breakeven import BreakEven, break_even
from benchback.stats.medians import Median, median_interval
from benchback.stats.published import Published, all_pairs, windows
from benchback.stats.ratios import (
    Estimate,
    Ratio,
    combine,
    estimate,
    geometric_mean,
    interval,
    minimum_detectable_effect,
    paired_ratio,
)
from benchback.stats.returns import (
    Band,
    interquartile_mean,
    performance_profile,
    profile_band,
    stratified_bootstrap,
    time_to_threshold,
)
from benchback.stats.slopes import Slope, robust_slope
from benchback.stats.steady import Segment, steady, warmup_excess
from benchback.stats.verdicts import MARGIN, Claim, Comparison, Measured, adjust, claim, compare, holm, tost, verdict

__all__ = [
    "MARGIN",
    "Band",
    "BreakEven",
    "Claim",
    "Comparison",
    "Estimate",
    "Measured",
    "Median",
    "Published",
    "Ratio",
    "Segment",
    "Slope",
    "adjust",
    "all_pairs",
    "break_even",
    "claim",
    "combine",
    "compare",
    "estimate",
    "geometric_mean",
    "holm",
    "interquartile_mean",
    "interval",
    "median_interval",
    "minimum_detectable_effect",
    "paired_ratio",
    "performance_profile",
    "profile_band",
    "robust_slope",
    "steady",
    "stratified_bootstrap",
    "time_to_threshold",
    "tost",
    "verdict",
    "warmup_excess",
    "windows",
]
