"""Statistics of measurements: pure functions on arrays, every random draw from a Generator given.

`ratios` estimates, `relay` compares programs that take turns, `verdicts` decides, `machines` sums up over machines,
`steady` finds where warm-up ends, `breakeven` when it has paid, `together` from how many agents on one program pays,
`growth` fits knees and exponents, `returns` summarises learning, `slopes` looks for leaks, `published` recomputes the
tables of benchback-rl by its own formulas.
A value that cannot be computed is replaced by a typed reason (`missing`), never by a sentence.
The tests simulate campaigns with known effects and check false alarms, coverage and power against the claims here.
Importing this imports neither scipy nor ruptures; the functions that need them do.
"""

from benchback.stats.breakeven import BreakEven, NoBreakEven, break_even
from benchback.stats.durations import time_left
from benchback.stats.growth import Fitted, Growth, NoFall, StillRising, TooFewPoints, exponent, growth, knee
from benchback.stats.machines import RandomEffects, random_effects
from benchback.stats.medians import Median, median_interval
from benchback.stats.missing import Measured, Missing, NotPositive
from benchback.stats.published import Published, all_pairs, windows
from benchback.stats.ratios import (
    Estimate,
    Ratio,
    bounds,
    combine,
    difference,
    estimate,
    geometric_mean,
    interval,
    mean_of,
    minimum_detectable_effect,
    paired_ratio,
    welch_estimate,
)
from benchback.stats.relay import NoCommonRound, balanced_orders, relay_ratio
from benchback.stats.returns import (
    Band,
    Difference,
    interquartile_mean,
    paired_difference,
    performance_profile,
    profile_band,
    stratified_bootstrap,
    time_to_threshold,
)
from benchback.stats.slopes import Slope, TooFewValues, robust_slope
from benchback.stats.steady import Segment, Unsteady, UnsteadyCause, steady, warmup_excess
from benchback.stats.together import Together, per_added_agent, together_break_even
from benchback.stats.verdicts import (
    MARGIN,
    Comparison,
    Gap,
    NoVerdict,
    Pooled,
    Verdict,
    adjust,
    compare,
    compare_unpaired,
    differ,
    from_estimate,
    holm,
    p_beyond,
    pool,
    tost,
    verdict,
)

__all__ = [
    "MARGIN",
    "Band",
    "BreakEven",
    "Comparison",
    "Difference",
    "Estimate",
    "Fitted",
    "Gap",
    "Growth",
    "Measured",
    "Median",
    "Missing",
    "NoBreakEven",
    "NoCommonRound",
    "NoFall",
    "NoVerdict",
    "NotPositive",
    "Pooled",
    "Published",
    "RandomEffects",
    "Ratio",
    "Segment",
    "Slope",
    "StillRising",
    "Together",
    "TooFewPoints",
    "TooFewValues",
    "Unsteady",
    "UnsteadyCause",
    "Verdict",
    "adjust",
    "all_pairs",
    "balanced_orders",
    "bounds",
    "break_even",
    "combine",
    "compare",
    "compare_unpaired",
    "differ",
    "difference",
    "estimate",
    "exponent",
    "from_estimate",
    "geometric_mean",
    "growth",
    "holm",
    "interquartile_mean",
    "interval",
    "knee",
    "mean_of",
    "median_interval",
    "minimum_detectable_effect",
    "p_beyond",
    "paired_difference",
    "paired_ratio",
    "per_added_agent",
    "performance_profile",
    "pool",
    "profile_band",
    "random_effects",
    "relay_ratio",
    "robust_slope",
    "steady",
    "stratified_bootstrap",
    "time_left",
    "time_to_threshold",
    "together_break_even",
    "tost",
    "verdict",
    "warmup_excess",
    "welch_estimate",
    "windows",
]
