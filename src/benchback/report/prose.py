"""The verdict in sentences: who is faster by how much, what to use, and what that depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import geometric_mean
from typing import Any

import polars as pl

from benchback.analysis.claims import ALL, span_text
from benchback.analysis.comparisons import Setting, reference_variant, setting_text
from benchback.analysis.progress import overtaking
from benchback.analysis.table import Source
from benchback.registry import BACKENDS
from benchback.stats import MARGIN

MATTERS = 1.1
"""A ratio that changes by this factor between cells is worth a sentence."""


@dataclass(frozen=True)
class Said:
    """What one setting says, a sentence each."""

    setting: str
    comparisons: tuple[str, ...]
    depends: tuple[str, ...] = ()
    chosen: str | None = None
    """The variant to use."""
    why: str = "No recommendation: nothing can be compared."
    near: tuple[str, ...] = ()
    """Variants that no verdict tells from the chosen one."""


@dataclass(frozen=True)
class Verdict:
    """What the campaign says: a recommendation, and the sentences of every setting."""

    recommendation: str
    settings: tuple[Said, ...]


def name_of(variant: str) -> str:
    """`Flax NNX (split)` of `nnx/split/phase`; other units and suites are said."""
    backend, mode, rest = variant.split("/", 2)
    unit, _, suite = rest.partition(" on ")
    extra = "" if unit.rstrip("'") == "phase" else f", unit {unit}"
    extra += f", {suite} environments" if suite else ""
    title = BACKENDS[backend].title if backend in BACKENDS else backend
    return f"{title} ({mode}{extra})"


def verdict(source: Source, tables: Mapping[str, pl.DataFrame]) -> Verdict:
    """Every setting by itself; the recommendation is that of the first, and says where others differ."""
    found = tuple(_said(source, tables["claims"], setting) for setting in source.settings)
    text = found[0].why
    for other in found[1:]:
        if other.chosen is None:
            text += f" In {other.setting} nothing can be recommended."
        elif found[0].chosen in other.near:
            text += f" In {other.setting} the choice is the same."
        else:
            text += f" In {other.setting} it would be {name_of(other.chosen)}."
    return Verdict(text, found)


def _said(source: Source, claims: pl.DataFrame, setting: Setting) -> Said:
    title = setting_text(setting)
    if not claims.is_empty():
        claims = claims.filter((pl.col("setting") == title) & ~pl.col("twin"))
    if claims.is_empty():
        return Said(title, ("Nothing can be compared: no two variants did the same work.",))
    few = len(set(claims["variant"]) - source.main)
    claims = claims.filter(pl.col("variant").is_in(sorted(source.main)))
    whole = claims.filter((pl.col("env") == ALL) & (pl.col("model") == ALL))
    said = [sentence(row, setting[4]) for row in whole.filter(pl.col("figure") == "steady").to_dicts()]
    if few:
        said.append(f"{few} more variants were measured in few cells; choose modes above to see them in section 2.")
    # Ratios to another reference, in cells that lack the usual one, cannot be set beside the others.
    reference = reference_variant(source.settings[setting])
    claims, whole = (part.filter(pl.col("reference") == reference) for part in (claims, whole))
    choice = choose(whole, reference)
    if choice is None:
        why = "No recommendation: no variant has a steady state that can be compared."
        return Said(title, tuple(said), why=why)
    depends = (
        _along(claims, "model", source.models, choice),
        _along(claims, "env", sorted(source.envs, key=lambda env: source.complexity.get(env, 0.0)), choice),
        _length(source, setting, choice),
    )
    return Said(title, tuple(said), depends, choice.variant, recommendation(choice), tuple(choice.near))


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


@dataclass(frozen=True)
class Choice:
    """Whom to use, of those that nothing was shown to be faster than."""

    variant: str
    near: tuple[str, ...]
    steady: Mapping[str, float]
    """Ratios to the reference that were shown; 1 where none was."""
    cold: Mapping[str, float]


def choose(claims: pl.DataFrame, reference: str) -> Choice | None:
    """The fastest in steady state; of those as fast, or that no verdict tells from it, the one that starts fastest."""
    known = pl.col("ratio").is_not_null() & (pl.col("verdict") != "no verdict")
    rows = claims.filter(known).to_dicts()
    steady = {row["variant"]: _settled(row) for row in rows if row["figure"] == "steady"}
    cold = {row["variant"]: _settled(row) for row in rows if row["figure"] == "cold_start"}
    if not steady:
        return None
    steady, cold = {reference: 1.0} | steady, {reference: 1.0} | cold
    best = min(steady.values())
    near = tuple(name for name, ratio in steady.items() if ratio <= best * (1 + MARGIN))
    chosen = min(near, key=lambda name: (cold.get(name, float("inf")), steady[name]))
    return Choice(chosen, near, steady, cold)


def recommendation(choice: Choice) -> str:
    """`Use plain JAX (jit): ...`, with the reason and the gain."""
    others = [name_of(name) for name in choice.near if name != choice.variant]
    why = f"nothing was shown to be more than {MARGIN:.0%} faster per iteration"
    if others:
        why += f", and of those not told from it ({', '.join(others)}) none was shown to start sooner"
    slowest = max(choice.steady, key=lambda name: choice.steady[name])
    gain = choice.steady[slowest] / choice.steady[choice.variant]
    against = f" Against {name_of(slowest)} it gains {gain:.2g}x per iteration." if gain > 1 + MARGIN else ""
    return (
        f"Use {name_of(choice.variant)}: {why}.{against} Parity is proven for what is compared; ease of use is in "
        "section 10."
    )


def _settled(row: Mapping[str, Any]) -> float:
    """The ratio where it was shown to differ from 1; a difference that was not shown must not decide."""
    return row["ratio"] if row["verdict"] in ("faster", "slower") else 1.0


def _along(claims: pl.DataFrame, axis: str, order: Sequence[str], overall: Choice) -> str:
    """Where the choice changes along models or environments, and where a ratio changes most."""
    other = "env" if axis == "model" else "model"
    part = claims.filter((pl.col(other) == ALL) & (pl.col(axis) != ALL))
    names = [name for name in order if name in set(part[axis])]
    words = {"model": "model size", "env": "cost of the environment"}[axis]
    if len(names) < 2:
        return f"On the {words}: not known, there is only {names[0] if names else 'one'}."
    different = []
    for name in names:
        here = choose(part.filter(pl.col(axis) == name), str(part["reference"][0]))
        if here is not None and overall.variant not in here.near:
            different.append(f"{name_of(here.variant)} with {name}")
    kept = "the choice is the same throughout" if not different else f"rather use {' and '.join(different)}"
    return f"On the {words}: {kept}; {_widest(claims, axis, other, names)}."


def _widest(claims: pl.DataFrame, axis: str, other: str, names: Sequence[str]) -> str:
    """The ratio that changes most along an axis, between two values of it that were measured with the same others.

    Over all others it could change only because cells were left out: large models here, small ones there.
    """
    shown = (pl.col("figure") == "steady") & pl.col("ratio").is_not_null()
    cells = claims.filter(shown & (pl.col(axis) != ALL) & (pl.col(other) != ALL))
    widest, text = MATTERS, f"no ratio changes by more than {MATTERS - 1:.0%} along it"
    for (variant,), rows in cells.group_by("variant", maintain_order=True):
        ratios = {(row[axis], row[other]): row["ratio"] for row in rows.to_dicts()}
        for pair in combinations(names, 2):
            common = [x for x in rows[other].unique(maintain_order=True) if all((name, x) in ratios for name in pair)]
            if not common:
                continue
            means = {name: geometric_mean([ratios[name, x] for x in common]) for name in pair}
            low, high = sorted(pair, key=lambda name: means[name])
            if means[high] / means[low] > widest:
                widest = means[high] / means[low]
                text = f"{name_of(str(variant))} takes {means[high]:.3g}x the time of {name_of(rows['reference'][0])} "
                text += f"with {high} and {means[low]:.3g}x with {low} ({', '.join(common)})"
    return text


def _length(source: Source, setting: Setting, choice: Choice) -> str:
    """How long training must be for the start of the chosen one to have paid."""
    soonest = min(choice.cold, key=lambda name: (choice.cold[name], name != choice.variant))
    if choice.cold[soonest] >= choice.cold.get(choice.variant, float("inf")):
        return f"Hardly on the length of training: nobody was shown to start sooner than {name_of(choice.variant)}."
    known = overtaking(source.settings[setting], choice.variant, soonest)
    if not known:
        return (
            f"On the length of training: {name_of(soonest)} starts sooner, and when {name_of(choice.variant)} "
            "overtakes it is not known."
        )
    least, most = min(known), max(known)
    span = f"{_steps(least)} to {_steps(most)}" if most > 1.05 * least else _steps(most)
    cells = f"{len(known)} cell{'s' if len(known) > 1 else ''}"
    return (
        f"On the length of training: {name_of(soonest)} starts sooner and is done first in short trainings; "
        f"{name_of(choice.variant)} overtakes it after {span} environment steps ({cells})."
    )


def _steps(count: float) -> str:
    """`1.2 million`, `45 thousand`."""
    if count >= 1e6:
        return f"{count / 1e6:.3g} million"
    return f"{count / 1e3:.3g} thousand" if count >= 1e3 else f"{count:.0f}"
