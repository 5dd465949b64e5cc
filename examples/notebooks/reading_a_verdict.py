# %% [markdown]
# # Reading a verdict, and its traps
#
# Two programs are timed and one is 3 % faster. Is it? This walkthrough makes up measurements whose truth is known,
# lets the usual ways of comparing them fail, and then reads the verdicts of benchback's own statistics. It takes
# seconds and needs no framework.

# %%
import altair as alt
import numpy as np
import polars as pl
from scipy.stats import ttest_ind

from benchback.stats.ratios import minimum_detectable_effect
from benchback.stats.steady import steady
from benchback.stats.verdicts import adjust, compare

alt.renderers.enable("png")
random = np.random.default_rng(0)

# %% [markdown]
# ## A machine that can be made up
#
# Every process has a speed of its own: where its memory lies, where its code was placed. It keeps that speed for
# its whole life. Iterations of one process scatter around it. Here two **equal** programs run five times each, for
# 200 iterations.

# %%
PROCESS, ITERATION = 0.01, 0.03  # standard deviations of the logarithm of time: between processes, between iterations


def runs(count: int, ratio: float = 1.0, iterations: int = 200) -> np.ndarray:
    """Seconds per iteration, `[runs, iterations]`; `ratio` times as long as the standard program."""
    own = random.normal(0, PROCESS, (count, 1))
    return 0.1 * ratio * np.exp(own + random.normal(0, ITERATION, (count, iterations)))


a, b = runs(5), runs(5)
samples = pl.DataFrame(
    [
        {"run": f"{name}{number}", "seconds": x}
        for name, side in (("A", a), ("B", b))
        for number, run in enumerate(side)
        for x in run.tolist()
    ]
)
alt.Chart(samples).mark_boxplot(size=18).encode(
    alt.X("seconds").scale(zero=False), alt.Y("run"), alt.Color("run").legend(None)
).properties(width=500, height=220, title="Ten processes of one and the same program")

# %% [markdown]
# ## Trap 1: iterations are not replicates
#
# 1000 iterations a side look like 1000 observations. A t-test of them is nearly always "significant": it finds that
# the *processes* differ, which they do, and takes it for a difference of the *programs*. What is replicated is the
# run.


# %%
def false_positives(test, trials: int = 400) -> float:
    """Share of comparisons of two equal programs in which the test finds a difference at 5 %."""
    return float(np.mean([test(runs(5), runs(5)) < 0.05 for _ in range(trials)]))


def pooled(a: np.ndarray, b: np.ndarray) -> float:
    """p-value of a t-test of all iterations."""
    return ttest_ind(np.log(a).ravel(), np.log(b).ravel()).pvalue


def by_block(a: np.ndarray, b: np.ndarray) -> float:
    """p-value of the paired t over blocks: one number, the median iteration, for each run."""
    return compare("A over B", np.median(a, axis=1).tolist(), np.median(b, axis=1).tolist()).p


rates = pl.DataFrame(
    {
        "replicates": ["iterations, pooled", "runs, in blocks"],
        "false positives": [false_positives(pooled), false_positives(by_block)],
    }
)
print(rates)

# %% [markdown]
# Nominal is 5 %. Only the second number is near it, and its price is that five runs are five observations.
#
# ## Trap 2: drift
#
# A machine warms up, or a neighbour logs in: every run takes 1 % longer than the one before. Measure all of A, then
# all of B, and B is slower. Alternate, and reverse the order from block to block, and the drift cancels in the
# ratios of the blocks.


# %%
def campaign(order: str, drift: float = 0.01) -> tuple[list[float], list[float]]:
    """Seconds of A and of B, equal programs, run in this order on a machine that becomes slower from run to run."""
    found: dict[str, list[float]] = {"A": [], "B": []}
    for place, name in enumerate(order):
        found[name].append(float(np.median(runs(1))) * (1 + drift) ** place)
    return found["A"], found["B"]


for order in ("AAAAAAAAAABBBBBBBBBB", "ABBAABBAABBAABBAABBA"):
    seconds_a, seconds_b = campaign(order)
    row = compare("B over A", seconds_b, seconds_a)
    print(f"{order}: {row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}] {row.verdict}")

# %% [markdown]
# benchback draws the order of a block at random, reverses it in the next, and in a relay lets processes take turns
# within a fraction of a second. `--order original` gives the first line back.
#
# ## Four verdicts
#
# *Faster* and *slower* say that there is a difference; *equivalent* that there is none beyond 2 %; *inconclusive*
# that neither could be shown. No difference found is not a tie shown: that is what the interval is for.

# %%
truths = {
    "equal, 4 blocks": (1.0, 4),
    "equal, 15 blocks": (1.0, 15),
    "3 % slower, 4 blocks": (1.03, 4),
    "3 % slower, 15 blocks": (1.03, 15),
}
rows = []
for name, (ratio, blocks) in truths.items():
    numerator, denominator = runs(blocks, ratio), runs(blocks)
    rows.append(compare(name, np.median(numerator, axis=1).tolist(), np.median(denominator, axis=1).tolist()))
table = pl.DataFrame(
    [
        {"truth": row.name, "ratio": row.ratio, "low": row.low, "high": row.high, "verdict": str(row.verdict)}
        for row in rows
    ]
)
axis = alt.Y("truth").sort(list(truths)).title(None)
bars = (
    alt.Chart(table)
    .mark_rule(size=3)
    .encode(alt.X("low").title("times as long").scale(zero=False), alt.X2("high"), axis)
)
points = alt.Chart(table).mark_point(filled=True, size=90, opacity=1).encode(alt.X("ratio"), axis, alt.Color("verdict"))
band = (
    alt.Chart(pl.DataFrame({"from": [1 / 1.02], "to": [1.02]}))
    .mark_rect(opacity=0.2, color="grey")
    .encode(x="from", x2="to")
)
(band + bars + points).properties(width=480, height=160, title="Grey: the margin of equivalence, 2 %")

# %% [markdown]
# How small a difference can so many blocks detect? `benchback plan` prints it before anything runs.

# %%
spread = np.sqrt(2) * PROCESS  # of the log ratio of two processes
for blocks in (3, 5, 10, 30):
    print(f"{blocks:2} blocks: {minimum_detectable_effect(spread, blocks):.1%}")

# %% [markdown]
# ## Trap 3: many comparisons
#
# Compare one program with twenty equal ones, and one of them is "significantly" different. `adjust` corrects the
# p-values for their number (Holm), as every claim of a report does.

# %%
reference = np.median(runs(6), axis=1).tolist()
family = [compare(f"variant {i}", np.median(runs(6), axis=1).tolist(), reference) for i in range(20)]
alone = sum(row.p < 0.05 for row in family)
together = sum(row.p_holm < 0.05 for row in adjust(family))
print(f"{alone} of 20 equal programs differ at 5 % each by itself, {together} after correction")

# %% [markdown]
# (All twenty share one reference. Had it happened to be slow, all of them would look fast together.)
#
# ## Trap 4: warm-up
#
# The first iterations compile, later ones may still settle. benchback keeps them all and finds where the level
# holds; if it never does, there is no steady state, and no number is made up.

# %%
compiled = np.exp(random.normal(0, 0.02, 150)) * 0.1
compiled[:12] *= np.linspace(3, 1.1, 12)
compiled[0] = 6.0
rising = np.exp(random.normal(0, 0.02, 150)) * np.linspace(0.1, 0.14, 150)
for name, seconds in (("settles", compiled), ("keeps rising", rising)):
    segment = steady(seconds)
    found = f"{segment.steady_s:.3f} s from iteration {segment.start} on"
    print(f"{name}: mean of all {seconds.mean():.3f} s; steady: {'never' if segment.reason else found}")

# %% [markdown]
# ## The check of checks: A/A
#
# Measure one program as if it were two. Whatever difference you find is false. Every campaign has such a pair
# (`linen/jit/phase'`); if the report finds a difference between the two, do not believe the others. Of 400 such
# comparisons, with six blocks each:

# %%
verdicts = pl.Series(
    "verdict",
    [str(compare("A over A", *(np.median(runs(6), axis=1).tolist() for _ in range(2))).verdict) for _ in range(400)],
)
print(verdicts.value_counts(sort=True))

# %% [markdown]
# ## In your own campaign
#
# ```
# benchback doctor                        # can this machine measure?
# benchback run smoke                     # measure
# benchback report runs/smoke.sqlite      # read: verdict first, then the A/A pair, the canary, what was left out
# ```
