"""Claims over machines: ratios are taken within a machine, then summed up over machines as a sample of them.

A machine is a stratum of a store, or a whole store. Only machines with the same code and versions are summed up, and of
each only the cells that all of them have.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from benchback import stats
from benchback.analysis.claims import Claim, Rows, claims_from, common_titles, parts_of, rows_of
from benchback.analysis.groups import Group, comparable, reference_variant
from benchback.analysis.reader import read
from benchback.analysis.source import Source
from benchback.analysis.table import frame, keys
from benchback.analysis.wording import comparison_columns, machine_name
from benchback.measure.machine import difference
from benchback.measure.metrics import METRICS
from benchback.measure.store import Store
from benchback.stats import Comparison, NoVerdict, RandomEffects

OVER = "over machines"
"""Stands for all machines in a table."""


@dataclass(frozen=True)
class Machine:
    """One of several machines on which a study was run."""

    name: str
    fingerprint: Mapping[str, Any]
    source: Source


@dataclass(frozen=True)
class Fleet:
    """Machines that can be summed up, and those that cannot."""

    machines: tuple[Machine, ...]
    left_out: Mapping[str, str]
    """Machine -> why it is not summed up."""


@dataclass(frozen=True)
class FleetClaim:
    """A statement about two variants on every machine, and over machines."""

    claims: Mapping[str, Claim]
    """Machine -> its own claim, over the cells that all machines have."""
    overall: Comparison
    """The ratio over machines; its `n` counts machines. Without one where a machine has none."""
    effects: RandomEffects | None
    """How machines differ; None where there is no ratio over them."""

    @property
    def claim(self) -> Claim:
        """The claim of the first machine: what it is about is the same on all."""
        return next(iter(self.claims.values()))


def fleet_of(store: Store, seed: int = 0) -> Fleet:
    """The strata of a store that have a result."""
    strata = store.strata()
    names = _names([(f"stratum {number}", print_) for number, print_ in enumerate(strata)])
    found = [Machine(names[i], strata[i], read(store, seed, stratum=i)) for i in range(len(strata))]
    return _fleet(found)


def fleet_from(sides: Sequence[tuple[str, Mapping[str, Any], Source]]) -> Fleet:
    """Stores or strata that were read, each with its name and fingerprint."""
    names = _names([(name, print_) for name, print_, _ in sides])
    return _fleet([Machine(name, side[1], side[2]) for name, side in zip(names, sides, strict=True)])


def _names(places: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """What each machine is, and where it is stored."""
    return [f"{place}: {machine_name(fingerprint)}" for place, fingerprint in places]


def _fleet(found: Sequence[Machine]) -> Fleet:
    """Machines with a result and the software of the last of those."""
    done = [machine for machine in found if any(run.sampled for run in machine.source.runs)]
    left_out = {machine.name: "no result" for machine in found if machine not in done}
    kept = []
    for machine in done:
        changed = difference(_software(done[-1].fingerprint), _software(machine.fingerprint))
        if changed:
            left_out[machine.name] = f"other software than {done[-1].name}: {'; '.join(changed)}"
        else:
            kept.append(machine)
    return Fleet(tuple(kept), left_out)


def _software(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a fingerprint that is the same on all machines that are summed up."""
    return {name: x for name, x in fingerprint.items() if name == "code" or name.startswith("version ")}


def fleet_claims(fleet: Fleet) -> list[FleetClaim]:
    """Every variant against its reference over all cells and over parts of them; none with fewer than two machines."""
    if len(fleet.machines) < 2:
        return []
    found = []
    for _, groups in comparable(fleet.machines[-1].source.groups):
        reference = reference_variant(groups)
        for metric in METRICS:
            found += _claims_of(fleet, groups, reference, metric)
    return found


def _claims_of(fleet: Fleet, groups: Sequence[Group], reference: str, metric: str) -> Iterator[FleetClaim]:
    """The claims of groups with a common reference by one metric."""
    titles = [group.title for group in groups]
    rows: dict[str, list[Rows]] = {}
    for machine in fleet.machines:
        own = [group for group in machine.source.groups if group.title in titles and group.cell(reference)]
        rows[machine.name] = rows_of(machine.source.parity, own, metric, reference) if own else []
    # A machine without any complete cell is missing in every claim; it must not take all cells from the others.
    common = [set(found) for each in rows.values() if (found := common_titles(each, titles))]
    shared = set.intersection(*common) if common else set()
    for env, model, part in parts_of([group for group in groups if group.title in shared]):
        by_machine = {name: claims_from(each, part, metric) for name, each in rows.items()}
        for first in by_machine[fleet.machines[-1].name]:
            same = {name: _same(claims, first) for name, claims in by_machine.items()}
            own = {name: replace(claim, env=env, model=model) for name, claim in same.items() if claim}
            known = any(claim.along or claim.ratio is not None for claim in own.values())
            if len(own) > 1 and known and not first.subject.twin:
                yield _over(own)


def _same(claims: Sequence[Claim], wanted: Claim) -> Claim | None:
    return next((claim for claim in claims if claim.variant == wanted.variant), None)


def _over(claims: Mapping[str, Claim]) -> FleetClaim:
    """The claim over machines, where each of them has one ratio."""
    first = next(iter(claims.values()))
    name = f"{first.variant} : {first.reference}"
    estimates = [claim.overall.estimate for claim in claims.values()]
    known = [estimate for estimate in estimates if estimate]
    if len(known) < len(estimates) or len(known) < 2:
        unlike = any(claim.along for claim in claims.values())
        reason = NoVerdict.DIFFERS if unlike else NoVerdict.NO_COMMON_CELL
        return FleetClaim(claims, Comparison(name, len(known), cells=first.overall.cells, reason=reason), None)
    effects = stats.random_effects(known)
    overall = stats.from_estimate(name, effects.estimate, len(known))
    return FleetClaim(claims, replace(overall, cells=first.overall.cells), effects)


def fleet_table(claims: Sequence[FleetClaim]) -> pl.DataFrame:
    """A row for every claim of every machine, and one over machines."""
    return frame([row for claim in claims for row in _rows(claim)])


def _rows(found: FleetClaim) -> Iterator[dict[str, Any]]:
    claim = found.claim
    about = keys(claim.subject) | {"env": claim.env, "model": claim.model, "reference": claim.reference}
    about |= {"figure": claim.metric}
    for name, own in found.claims.items():
        yield about | {"machine": name} | comparison_columns(own.overall, own.along) | _spread(None)
    yield about | {"machine": OVER} | comparison_columns(found.overall) | _spread(found.effects)


def _spread(effects: RandomEffects | None) -> dict[str, float | None]:
    names = ("between", "q", "p", "i_squared")
    return {f"machines_{name}": None if effects is None else float(getattr(effects, name)) for name in names}
