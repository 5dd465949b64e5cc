"""How speed and memory grow: environments, width, depth, threads, replay and agents, each varied alone from one point.

A study like any other, of trainings of ours and, if asked for, of peers' programs that do the same work: every point is
a fresh process in each block. Rows, lines and fits are made from the store. Importing this imports no framework.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchback import registry
from benchback.errors import InputError
from benchback.measure import caches, machine
from benchback.measure.cost import RATE, seconds_per_run
from benchback.measure.metrics import running_share
from benchback.measure.peers.environments import Environment, is_complete
from benchback.measure.peers.sides import SIDES, Side
from benchback.measure.peers.work import FIELDS_OF_CELL, WORKLOADS, Workload
from benchback.measure.record import Attempt, Cell, Record
from benchback.measure.results import failure, latest
from benchback.measure.store import Store
from benchback.measure.study import Product, Study
from benchback.stats import Growth, growth
from benchback.training.run import Run

NAME = "scale"
POINT = replace(WORKLOADS["B"], name=NAME, config=replace(WORKLOADS["B"].config, num_envs=64, num_steps=64))
"""From here one axis at a time is varied, on one thread."""
OF_REPLAY = replace(WORKLOADS["D"], name=NAME, config=replace(WORKLOADS["D"].config, num_iterations=2_000))
"""The point of what the other algorithm has not."""
WORK_S, FEWEST, MOST = 1.0, 4, 500
"""Seconds that the products of a training take, about, and its iterations at least and at most."""
WARM_UP_CALLS = 2
TIMEOUT_S = 900.0
FIGURES = ("steps_per_s", "step_us", "rollout_steps_per_s", "update_steps_per_s", "peak_rss_bytes")


def changed(**fields: Any) -> Workload:
    """The point with other values, in as many iterations as its products allow."""
    work = replace(POINT, config=replace(POINT.config, **fields))
    return sized(work)


def sized(work: Workload) -> Workload:
    """The work in so many iterations that all points take about as long, where the fewest do not take longer."""
    fitting = int(WORK_S * RATE / work.demand()["flops"])
    return work.with_iterations(min(MOST, max(FEWEST, fitting)))


@dataclass(frozen=True)
class Axis:
    """What is varied, and what it is called."""

    title: str
    values: tuple[int, ...]
    rising: bool
    """Whether one wants more of it; else it costs."""
    at: Callable[[int], Workload]
    """The work at a value."""
    value: Callable[[Cell], int]
    """The value of a cell."""


AXES = {
    "envs": Axis(
        "environments",
        tuple(4**i for i in range(8)),
        True,
        lambda x: changed(num_envs=x),
        lambda cell: cell.run["num_envs"],
    ),
    "width": Axis(
        "units per hidden layer",
        tuple(2**i for i in range(4, 11)),
        False,
        lambda x: changed(hidden_sizes=(x, x)),
        lambda cell: cell.run["hidden_sizes"][0],
    ),
    "depth": Axis(
        "hidden layers",
        (1, 2, 3, 4, 6, 8),
        False,
        lambda x: changed(hidden_sizes=POINT.config.hidden_sizes[:1] * x),
        lambda cell: len(cell.run["hidden_sizes"]),
    ),
    "threads": Axis("threads", tuple(2**i for i in range(10)), True, lambda x: changed(), lambda cell: cell.threads),
    "replay": Axis(
        "transitions in the replay",
        (10_000, 31_600, 100_000, 316_000, 1_000_000),
        False,
        lambda x: replace(OF_REPLAY, config=replace(OF_REPLAY.config, replay_capacity=x)),
        lambda cell: cell.run["replay_capacity"],
    ),
    "agents": Axis(
        "agents in one program",
        (1, 2, 8, 32, 128, 512),
        True,
        lambda x: sized(replace(POINT, agents=x)),
        lambda cell: max(cell.members, cell.run.get("agents", 1)),
    ),
}


def study_for(
    *,
    backends: Sequence[str] = (),
    axes: Sequence[str] = (),
    peers: Sequence[str] = (),
    largest: int | None = None,
    blocks: int = 3,
) -> Study:
    """A study with a product for each axis, labelled with it; the point is run once for all axes that hold it.

    An axis that was named is refused where a side that was named has none such; of all axes each side has its own.
    """
    if blocks < 1:
        raise InputError(f"blocks={blocks} must be at least 1")
    for axis in axes:
        registry.choose("axis", axis, AXES)
    for name in peers:
        registry.choose("peer", name, SIDES)
    without = unable(axes or tuple(AXES), backends, peers)
    if axes and (first := next(iter(without), None)):
        axis, name = first
        raise InputError(f"axis={axis} is not one of {name}: {without[first]}; leave out one of them")
    products = [
        Product(label=axis, axes={"point": rows})
        for axis in axes or AXES
        if (rows := rows_on(axis, backends, peers, largest))
    ]
    if not products:
        raise InputError(f"largest={largest} leaves no value on any axis; choose a larger one")
    options = {"timeout_s": TIMEOUT_S, "aa": False, "rerun_noisy": False}
    # Cells do different work: there is nobody to take turns with.
    return Study(NAME, tuple(products), min_blocks=blocks, max_blocks=blocks, protocol="runs", **options)


def study_in(store: Store) -> Study | None:
    """The study of a store that this module made; None of another."""
    given = store.campaign()["study"]
    if given["name"] != NAME or not {part["label"] for part in given["products"]} <= AXES.keys():
        return None
    return Study.from_dict(given)


def unable(axes: Sequence[str], backends: Sequence[str], peers: Sequence[str]) -> dict[tuple[str, str], str]:
    """Axis and side -> why the side, which was named, has no such axis."""
    found = {}
    for axis in axes:
        last = AXES[axis].at(AXES[axis].values[-1])
        found |= {(axis, name): reason for name in backends if (reason := unable_backend(name, last))}
        found |= {(axis, name): "it does no such work" for name in peers if not sides_of(name, last)}
    return found


def unable_backend(name: str, work: Workload) -> str:
    """Why the backend cannot do the work; empty if it can."""
    spec = registry.BACKENDS[registry.choose("backend", name, registry.BACKENDS)]
    if name not in registry.backends_of(work.algorithm):
        return f"it has no {work.algorithm}"
    return "its agents are trained one after another" if work.agents > 1 and not spec.populations else ""


def sides_of(peer: str, work: Workload) -> list[Side]:
    """The peer's side that does this work, if there is one: it may have one for each algorithm."""
    names = [peer, f"{peer}_{work.algorithm}"]
    return [SIDES[name] for name in names if name in SIDES and SIDES[name].does(work)]


def rows_on(axis: str, backends: Sequence[str], peers: Sequence[str], largest: int | None) -> list[dict[str, Any]]:
    """The configurations of all sides on an axis that can be run here."""
    values = [value for value in values_on(axis) if largest is None or value <= largest]
    last = AXES[axis].at(AXES[axis].values[-1])
    able = [name for name in backends or registry.one_of_each_family() if not unable_backend(name, last)]
    points = [(AXES[axis].at(value), value if axis == "threads" else 1) for value in values]
    rows = [fields_at(name, work, threads) for name in able for work, threads in points]
    sides = [side for name in peers for side in sides_of(name, last)]
    return rows + [peer_fields_at(side, work, threads) for side in sides for work, threads in points]


def values_on(axis: str) -> list[int]:
    """The values of an axis that can be run here: of threads also that of all processors."""
    if axis != "threads":
        return list(AXES[axis].values)
    most = len(machine.allowed_processors())
    return sorted({most, *(value for value in AXES[axis].values if value <= most)})


def fields_at(backend: str, work: Workload, threads: int) -> dict[str, Any]:
    """The work as a training of ours, its phases timed apart; torch uses its own environment."""
    suite = "torch" if registry.BACKENDS[backend].family == "torch" else "gymnax"
    fields = {name: x for name, x in work.to_dict().items() if name != "agents"}
    settings = {"threads": threads, "timing": "sync", "members": work.agents}
    return fields | settings | {"backend": backend, "env": f"{suite}/{work.env}"}


def peer_fields_at(side: Side, work: Workload, threads: int) -> dict[str, Any]:
    """The work as the input of a peer's program."""
    named = dict(zip(FIELDS_OF_CELL, (work.name, side.name), strict=True))
    return named | work.to_dict() | {"threads": threads, "kind": "peer"}


def how_to_get(peers: Sequence[str]) -> str:
    """The command that installs these peers: a short comparison of work that they do."""
    works = dict.fromkeys(next(work.name for work in WORKLOADS.values() if SIDES[name].does(work)) for name in peers)
    return f"benchback peers --quick --workloads {' '.join(works)} --sides {' '.join(peers)}"


def missing_environments(study: Study) -> list[str]:
    """A peer for each virtual environment that is not there."""
    folder = caches.cache_folder("peers")
    first: dict[Environment, str] = {}
    for cell in study.cells:
        if cell.kind == "peer" and (environment := SIDES[cell.variant].environment):
            first.setdefault(environment, cell.variant)
    return [name for environment, name in first.items() if not is_complete(environment, folder / environment.name)]


def seconds(study: Study) -> dict[tuple[str, str], float]:
    """Axis and side -> seconds of all its runs by a rough model; a run of several axes counts to the first."""
    found: dict[tuple[str, str], float] = {}
    counted: set[str] = set()
    for entry in study.entries:
        place = entry.label, side_name(entry.cell)
        spent = 0.0 if entry.cell.id in counted else study.min_blocks * seconds_of(entry.cell)
        found[place] = found.get(place, 0.0) + spent
        counted.add(entry.cell.id)
    return found


def seconds_of(cell: Cell) -> float:
    """Seconds of a run; of a peer, which trains twice or without compiling, those of ours on its environments twice."""
    if cell.kind == "training":
        return seconds_per_run(cell)
    side, work = (
        SIDES[cell.variant],
        {name: x for name, x in cell.run.items() if name not in (*FIELDS_OF_CELL, "agents")},
    )
    fields = work | {"backend": registry.one_of_each_family()[0], "env": f"{side.suite}/{cell.run['env']}"}
    run = {name: x for name, x in Run.from_dict(fields).to_dict().items() if name != "seed"}
    return 2 * seconds_per_run(Cell(run, threads=cell.threads, members=cell.run.get("agents", 1)))


def side_name(cell: Cell) -> str:
    """Of ours as `linen/jit/phase`, wherever its environment is; of a peer its name."""
    return cell.variant.partition(" on ")[0]


def rows(store: Store, study: Study) -> list[dict[str, Any]]:
    """One row per run and axis: value, throughput and memory, or why it failed."""
    tried: dict[str, list[tuple[int, Attempt]]] = {}
    for slot, attempt in latest(store):
        tried.setdefault(slot.cell, []).append((slot.block, attempt))
    return [
        {"side": side_name(entry.cell), "axis": entry.label, "value": AXES[entry.label].value(entry.cell)}
        | {"block": block, "error": failure(attempt)}
        | (measured(attempt.record, entry.cell) if attempt.record else {})
        for entry in study.entries
        for block, attempt in tried.get(entry.cell.id, [])
    ]


def measured(record: Record, cell: Cell) -> dict[str, float]:
    """Throughput, time of an environment step, and peak memory; of ours also throughput of rollouts and updates.

    On one thread without the time in which other processes had the processor.
    """
    rates = rates_of_peer(record, cell) if cell.kind == "peer" else rates_of_training(record, cell)
    return rates | {"step_us": 1e6 / rates["steps_per_s"], "peak_rss_bytes": record.memory["peak_rss_bytes"]}


def rates_of_training(record: Record, cell: Cell) -> dict[str, float]:
    """Of whole iterations, rollouts and updates once it learns and is warm."""
    steps, share = record.ledger["env_steps_per_call"], running_share(record)
    first = WARM_UP_CALLS + Run.from_dict(dict(cell.run)).config.iterations_before_learning

    def rate(name: str) -> float:
        timed = zip(record.samples[name][first:], share[first:], strict=True)
        return steps / statistics.median(x * part for x, part in timed if x is not None)

    parts = {"steps_per_s": "total_s", "rollout_steps_per_s": "rollout_s", "update_steps_per_s": "update_s"}
    return {figure: rate(name) for figure, name in parts.items()}


def rates_of_peer(record: Record, cell: Cell) -> dict[str, float]:
    """Of its steady part."""
    sample = {name: values[0] or 0.0 for name, values in record.samples.items()}
    waited_s = sample.get("waited_s", 0.0) if cell.threads == 1 else 0.0
    return {"steps_per_s": sample["env_steps"] / (sample["steady_s"] - waited_s)}


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line per point: medians over blocks with their range."""
    lines = []
    for axis, side in dict.fromkeys((row["axis"], row["side"]) for row in rows):
        mine = sorted((r for r in rows if (r["axis"], r["side"]) == (axis, side)), key=lambda row: row["value"])
        values = dict.fromkeys(row["value"] for row in mine)
        lines += [line_of(axis, side, value, [r for r in mine if r["value"] == value]) for value in values]
    return lines


def line_of(axis: str, side: str, value: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One point over all its blocks."""
    good = [row for row in rows if not row["error"]]
    line: dict[str, Any] = {"axis": axis, "side": side, "value": value, "blocks": len(good)}
    for name in FIGURES:
        known = [row[name] for row in good if row.get(name) is not None]
        line[name] = statistics.median(known) if known else None
    speeds = [row["steps_per_s"] for row in good]
    line |= {"slowest": min(speeds, default=None), "fastest": max(speeds, default=None)}
    return line | {"error": next((row["error"] for row in rows if row["error"]), "")}


def fits(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Growth]:
    """Axis and side -> knee and exponents."""
    curves: dict[tuple[str, str], dict[int, dict[float, float]]] = {}
    for row in rows:
        if not row["error"]:
            blocks = curves.setdefault((row["axis"], row["side"]), {})
            blocks.setdefault(row["block"], {})[row["value"]] = row["steps_per_s"]
    return {place: growth([*blocks.values()], rising=AXES[place[0]].rising) for place, blocks in curves.items()}
