"""The verdict in sentences: who is faster by how much, what to use, and what that depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from benchback.registry import BACKENDS
from benchback.report.claimed import ALL, setting_text, span_text
from benchback.report.table import Setting, Source
from benchback.stats import MARGIN

MATTERS = 1.1
"""A ratio that changes by this factor between cells is worth a sentence."""


@dataclass(frozen=True)
class Verdict:
    """What the campaign says, a sentence each."""

    comparisons: tuple[str, ...]
    recommendation: str
    depends: tuple[str, ...]


def name_of(variant: str) -> str:
    """`Flax NNX (cached_partial)` of `nnx/cached_partial/phase`; other units and suites are said."""
    backend, mode, rest = variant.split("/", 2)
    unit, _, suite = rest.partition(" on ")
    extra = "" if unit.rstrip("'") == "phase" else f", unit {unit}"
    extra += f", {suite} environments" if suite else ""
    title = BACKENDS[backend].title if backend in BACKENDS else backend
    return f"{title} ({mode}{extra})"


def verdict(source: Source, tables: Mapping[str, pl.DataFrame]) -> Verdict:
    """Of the first setting of the campaign: its other settings are in the figures."""
    setting = next(iter(source.settings))
    claims = tables["claims"]
    if not claims.is_empty():
        claims = claims.filter((pl.col("setting") == setting_text(setting)) & ~pl.col("twin"))
    if claims.is_empty():
        return Verdict(("Nothing can be compared: no two variants did the same work.",), "No recommendation.", ())
    whole = claims.filter((pl.col("env") == ALL) & (pl.col("model") == ALL))
    few = _rare(whole)
    whole, claims = (part.filter(~pl.col("variant").is_in(few)) for part in (whole, claims))
    found = [sentence(row, setting[4]) for row in whole.filter(pl.col("figure") == "steady").to_dicts()]
    if few:
        found.append(f"{len(few)} more variants were measured in few cells; they are in sections 2 and 3.")
    steady = whole.filter((pl.col("figure") == "steady") & pl.col("ratio").is_not_null()).to_dicts()
    cold = {row["variant"]: row for row in whole.filter(pl.col("figure") == "cold_start").to_dicts()}
    depends = [*_by(claims, "model", source.models), *_by(claims, "env", source.envs)]
    depends += _length(tables["breakeven"], setting, whole["variant"].unique().to_list())
    return Verdict(tuple(found), recommendation(steady, cold, source.references[setting]), tuple(depends))


def _rare(whole: pl.DataFrame) -> list[str]:
    """Variants in fewer than half as many cells as the most frequent one: no verdict over all cells is theirs."""
    counts = whole.group_by("variant", maintain_order=True).agg(pl.col("cells").max())
    most = max(counts["cells"].to_list(), default=0)
    return [row["variant"] for row in counts.to_dicts() if 2 * row["cells"] < most]


def sentence(row: Mapping[str, Any], division: str) -> str:
    """`Flax NNX (jit) is 1.02x [1.01, 1.03] slower than Flax Linen (jit) in steady state, 36 cells, matched.`"""
    mine, theirs = name_of(row["variant"]), name_of(row["reference"])
    scope = f"{row['cells']} cell{'s' if row['cells'] != 1 else ''}, {row['blocks']} blocks, {division}"
    left = f" ({row['reason']})" if row["reason"] and row["ratio"] is not None else ""
    if row["ratio"] is None:
        return f"{mine} cannot be compared with {theirs} in steady state: {row['reason']}."
    ratio, low, high = row["ratio"], row["low"], row["high"]
    if row["verdict"] == "faster":
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    span = span_text(ratio, low, high)
    if row["verdict"] in ("faster", "slower"):
        return f"{mine} is {span} {row['verdict']} than {theirs} in steady state, {scope}{left}."
    if row["verdict"] == "equivalent":
        return f"{mine} is equivalent to {theirs} in steady state, within {MARGIN:.0%}: {span}, {scope}{left}."
    if row["verdict"] == "inconclusive":
        unseen = f"; effects below {row['detectable']:.1%} could not be seen" if row["detectable"] is not None else ""
        return f"{mine} cannot be told from {theirs} in steady state: {span}, {scope}{left}{unseen}."
    return f"{mine} takes {ratio:.3g}x the time of {theirs} in steady state, without a verdict: {row['reason']}."


def recommendation(steady: Sequence[Mapping[str, Any]], cold: Mapping[str, Any], reference: str) -> str:
    """The fastest in steady state; of those as fast, or that no verdict tells from it, the one that starts fastest."""
    if not steady:
        return "No recommendation: no variant has a steady state that can be compared."
    times = {reference: 1.0} | {row["variant"]: _settled(row) for row in steady if row["verdict"] != "no verdict"}
    starts = {reference: 1.0} | {name: _settled(row) for name, row in cold.items() if row["ratio"] is not None}
    best = min(times.values())
    near = [name for name, ratio in times.items() if ratio <= best * (1 + MARGIN)]
    chosen = min(near, key=lambda name: (starts.get(name, float("inf")), times[name]))
    others = [name_of(name) for name in near if name != chosen]
    why = f"nothing was shown to be more than {MARGIN:.0%} faster per iteration"
    if others:
        why += f", and of those not told from it ({', '.join(others)}) none was shown to start sooner"
    slowest = max(times, key=lambda name: times[name])
    gain = times[slowest] / times[chosen]
    against = f" Against {name_of(slowest)} it gains {gain:.2g}x per iteration." if gain > 1 + MARGIN else ""
    return (
        f"Use {name_of(chosen)}: {why}.{against} Parity is proven for what is compared; ease of use is in section 10."
    )


def _settled(row: Mapping[str, Any]) -> float:
    """The ratio where it was shown to differ from 1; a difference that was not shown must not decide."""
    return row["ratio"] if row["verdict"] in ("faster", "slower") else 1.0


def _by(claims: pl.DataFrame, axis: str, order: Sequence[str]) -> list[str]:
    """Where a ratio changes most along models or environments, if it changes at all."""
    other = "env" if axis == "model" else "model"
    part = claims.filter(
        (pl.col("figure") == "steady") & (pl.col(other) == ALL) & (pl.col(axis) != ALL) & pl.col("ratio").is_not_null()
    )
    widest: tuple[float, str] = (MATTERS, "")
    words = {"model": "model size", "env": "environment"}[axis]
    for (variant,), rows in part.group_by("variant", maintain_order=True):
        ratios = {row[axis]: row for row in rows.to_dicts()}
        known = [name for name in order if name in ratios]
        low, high = (choose(known, key=lambda name: ratios[name]["ratio"]) for choose in (min, max))
        change = ratios[high]["ratio"] / ratios[low]["ratio"]
        if change > widest[0]:
            text = f"{name_of(str(variant))} takes {ratios[high]['ratio']:.3g}x the time of "
            text += f"{name_of(ratios[high]['reference'])} with {high}, and {ratios[low]['ratio']:.3g}x with {low}."
            widest = change, f"On the {words}: {text}"
    return (
        [widest[1]]
        if widest[1]
        else [f"Hardly on the {words}: no ratio changes by more than {MATTERS - 1:.0%} along it."]
    )


def _length(breakeven: pl.DataFrame, setting: Setting, variants: Sequence[str]) -> list[str]:
    """How long training must be for a slow start to pay."""
    if breakeven.is_empty():
        return []
    known = pl.col("env_steps").is_not_null() & pl.col("low").is_not_null() & pl.col("high").is_not_null()
    part = breakeven.filter((pl.col("timing") == setting[1]) & known & pl.col("variant").is_in(variants))
    if part.is_empty():
        return ["Not surely on the length of training: of nobody who starts later it is known when it overtakes."]
    said = []
    for (variant, who), rows in part.group_by("variant", "overtakes", maintain_order=True):
        least, most = float(rows["env_steps"].min()), float(rows["env_steps"].max())  # pyright: ignore
        behind = str(variant) if who != variant else str(rows["reference"][0])
        span = f"{_steps(least)} to {_steps(most)}" if most > 1.05 * least else _steps(most)
        cells = f"{len(rows)} cell{'s' if len(rows) > 1 else ''}"
        said.append(
            (most, f"{name_of(str(who))} overtakes {name_of(behind)} after {span} environment steps ({cells}).")
        )
    return [f"On the length of training: {text}" for _, text in sorted(said, reverse=True)[:3]]


def _steps(count: float) -> str:
    """`1.2 million`, `45 thousand`."""
    if count >= 1e6:
        return f"{count / 1e6:.3g} million"
    return f"{count / 1e3:.3g} thousand" if count >= 1e3 else f"{count:.0f}"
