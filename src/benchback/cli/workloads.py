"""Verbs about workloads besides studies: the same work in other libraries, single operations, and scaling.

Each is a study run by the coordinator: run again, it continues where it was stopped.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchback.analysis.wording import ratio_text
from benchback.cli.arguments import parse
from benchback.cli.tables import hours, table
from benchback.errors import InputError
from benchback.measure.micro.operations import OPERATIONS

if TYPE_CHECKING:
    from benchback.measure.store import Store
    from benchback.measure.study import Study


@dataclass(frozen=True)
class PeersFlags:
    """The same work in benchback and its peers: fresh processes, interleaved in blocks, ratios with intervals."""

    quick: bool = False
    """Workload A only, few iterations, two blocks."""
    blocks: int | None = None
    """Runs of every side; 5 by default, 2 with --quick."""
    workloads: tuple[str, ...] = ()
    """PPO on A: CartPole 32 x 256, B: CartPole 4 x 128, C: Breakout-MinAtar 32 x 256; D: DQN on CartPole; E: TD3 on
    Pendulum; F: PPO on brax's reacher, G: on HalfCheetah-v5; H: PPO with a GRU; I: 32 agents of B. All by
    default."""
    sides: tuple[str, ...] = ()
    """Sides to compare; all by default."""
    threads: int = 1
    """CPU threads of every side."""
    store: Path | None = None
    """Where runs are stored, runs/VERB.sqlite by default; the same choices again continue what is unfinished."""
    new_stratum: bool = False
    """Start over on a machine that has changed; runs before and after are never pooled."""
    out: Path | None = None
    """File for the metrics of every run, a JSON line each."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class MicroFlags:
    """What single operations cost in each backend, mode and idiom of passing the model; dispatch and compute apart."""

    quick: bool = False
    """Best modes and batch 32 only, few rounds."""
    backends: tuple[str, ...] = ()
    """Backends to time; all by default."""
    batches: tuple[int, ...] = ()
    """Batch sizes; 1, 32 and 1024 by default."""
    rounds: int | None = None
    """Samples of every operation; 20 by default, 5 with --quick."""
    threads: int = 1
    """CPU threads of every backend."""
    store: Path | None = None
    """Where runs are stored, runs/VERB.sqlite by default; the same choices again continue what is unfinished."""
    new_stratum: bool = False
    """Start over on a machine that has changed; runs before and after are never pooled."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ScaleFlags:
    """How speed and memory grow with environments, width, depth, threads, replay and agents: knees and exponents."""

    backends: tuple[str, ...] = ()
    """Backends to scale; linen and pytorch by default."""
    axes: tuple[str, ...] = ()
    """What to vary: envs, width, depth, threads, replay, agents; all that a side has by default."""
    peers: tuple[str, ...] = ()
    """Peers beside them, e.g. purejax_style rejax stable_baselines3 sbx; none by default."""
    largest: int | None = None
    """Leave out larger values."""
    blocks: int = 3
    """Runs of every point."""
    plan: bool = False
    """Only show how long each axis takes, about."""
    store: Path | None = None
    """Where runs are stored, runs/VERB.sqlite by default; the same choices again continue what is unfinished."""
    new_stratum: bool = False
    """Start over on a machine that has changed; runs before and after are never pooled."""
    out: Path = Path("runs/scale")
    """Folder for the page, the tables as Markdown and CSV, and the chart as PNG and SVG."""
    json: bool = False
    """Print JSON."""


@contextmanager
def measured(study: "Study", flags: PeersFlags | MicroFlags | ScaleFlags) -> Iterator["Store"]:
    """The complete store of a comparison; an interrupted one is continued."""
    from benchback.cli.arguments import on_stop
    from benchback.cli.board import stopped_text, watching
    from benchback.cli.running import check_runnable
    from benchback.measure import coordinator

    check_runnable(study)
    stop = on_stop()
    path = flags.store or Path("runs") / f"{study.name}.sqlite"
    with coordinator.open_campaign(path, study, new_stratum=flags.new_stratum) as store:
        with watching(store, as_json=False) as hooks:
            # Parity is checked only by studies that make claims about backends.
            complete = coordinator.work(store, study, replace(hooks, asked_to_stop=stop, prove=None))
        if not complete:
            raise KeyboardInterrupt(stopped_text(store))
        yield store


def print_workload(store: "Store", out: Path, as_json: bool) -> bool:
    """Print the tables of a store of peers, single operations or scaling, with a page if any; False for another."""
    from benchback.measure import micro, peers
    from benchback.measure.scale import study_in

    if study := study_in(store):
        show_scale(store, study, out, as_json)
        return True
    kinds = {cell.kind for cell in store.cells().values()}
    if "peer" in kinds:
        show_peers(store, peers.rows(store), out, as_json)
    elif "operations" in kinds:
        print_micro(micro.summarise(store), as_json)
    return bool(kinds & {"peer", "operations"})


def peers(arguments: list[str]) -> int:
    from benchback.measure import peers
    from benchback.training.checkpoint import write_atomically

    flags = parse(PeersFlags, arguments, "peers")
    choice = {"quick": flags.quick, "blocks": flags.blocks, "workloads": flags.workloads, "sides": flags.sides}
    with measured(peers.study_for(**choice, threads=flags.threads), flags) as store:
        rows = peers.rows(store)
        if flags.out:
            write_atomically(flags.out, "".join(json.dumps(row) + "\n" for row in rows))
        show_peers(store, rows, report_folder(store.path), flags.json)
    return 0


def report_folder(store: Path) -> Path:
    """Where the report of a store is written by default: beside it."""
    return store.with_name(f"{store.stem}-report")


def show_peers(store: "Store", rows: list[dict[str, Any]], out: Path, as_json: bool) -> None:
    """Write the page and print the tables."""
    from benchback.measure import peers
    from benchback.report import peers as report

    lines = peers.summarise(rows)
    path = report.write(store, lines, out)
    print_peers(lines, as_json)
    if not as_json:
        print(f"{path} shows targets, limits and differences")


def print_peers(lines: list[dict[str, Any]], as_json: bool) -> None:
    """Print one line per workload and side; ratios say how many times as fast benchback's sides are."""
    if as_json:
        print(json.dumps(lines, indent=2))
        return
    own = list(dict.fromkeys(line["side"] for line in lines if line["own"]))
    columns = ("workload", "side", "env steps/s", "compile s", "peak MB", "return")
    rows = [
        (line["workload"], line["side"], f"[red]{line['error'][:60]}[/red]", *[""] * 3)
        if line["steps_per_s"] is None
        else (
            line["workload"],
            line["side"],
            f"{line['steps_per_s']:,.0f}",
            f"{line['compile_s']:.1f}",
            f"{line['peak_rss_bytes'] / 1e6:,.0f}",
            "-" if line["episode_return"] is None else f"{line['episode_return']:.1f}",
        )
        for line in lines
    ]
    Console().print(table("every side", columns, rows))
    rows = [
        (line["workload"], line["side"], *("" if line[x] is None else how.format(line[x]) for x, how in LIMITS.items()))
        for line in lines
        if line["env"] is not None
    ]
    title = "what the machine alone would take of each side's time; limit: products and env"
    if rows:
        Console().print(table(title, ("workload", "side", *LIMITS), rows))
    others = [line for line in lines if line["steps_per_s"] is not None and line["ratios"]]
    rows = [(line["workload"], line["side"], *(ratio(line["ratios"].get(name)) for name in own)) for line in others]
    columns = ("workload", "than", *(f"{name} is" for name in own))
    Console().print(table("how many times as fast, with 95 % interval ([?]: too few blocks to tell)", columns, rows))
    for line in lines:
        differs = ", ".join(f"{name}={value}" for name, value in line["differs"].items())
        note = "; ".join(filter(None, (line["note"], differs and f"differs in {differs}", line["error"])))
        print(f"{line['workload']} {line['side']}: {note}\n    {json.dumps(line['config'], sort_keys=True)}")


LIMITS = dict.fromkeys(("products", "bandwidth", "env", "limit"), "{:.0%}")
"""Shares of a side's time, see `summary.shares` -> how they are printed."""
WIDEST = 10.0
"""Widest interval shown, as high / low; two noisy blocks give wider ones."""


def ratio(found: dict[str, Any] | None) -> str:
    """`1.42x [1.38, 1.46]`, without the interval for one block; `1.4x [?]` where it is too wide to be informative."""
    return ratio_text(found["ratio"], found["low"], found["high"], widest=WIDEST) if found else ""


def micro(arguments: list[str]) -> int:
    from benchback.measure import micro

    flags = parse(MicroFlags, arguments, "micro")
    choice = {"quick": flags.quick, "backends": flags.backends, "batches": flags.batches, "rounds": flags.rounds}
    with measured(micro.study_for(**choice, threads=flags.threads), flags) as store:
        print_micro(micro.summarise(store), flags.json)
    return 0


def print_micro(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print one table per operation; times in microseconds."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("batch", "backend", "mode", "call us", "dispatch us", "compute us", "times rival")
    for operation in dict.fromkeys(row["operation"] for row in rows):
        mine = [row for row in rows if row["operation"] == operation]
        cells = [
            (
                str(row["batch"]),
                row["backend"],
                row["mode"],
                f"{row['call_s'] * 1e6:,.1f} [{row['call_low_s'] * 1e6:,.1f}, {row['call_high_s'] * 1e6:,.1f}]",
                f"{row['dispatch_s'] * 1e6:,.1f}",
                f"{row['compute_s'] * 1e6:,.1f}",
                ratio(row["ratio"]),
            )
            for row in mine
        ]
        Console().print(table(f"{operation}: {OPERATIONS[operation]}; rival {mine[0]['rival']}", columns, cells))
    idioms = {(row["backend"], row["mode"]): row["idiom"] for row in rows if row["operation"] == "forward"}
    for (backend, mode), idiom in idioms.items():
        print(f"{backend}/{mode}: {idiom}")
    for row in rows:
        if "fraction_of_limit" in row:
            who = f"update, batch {row['batch']}, {row['backend']}/{row['mode']}"
            print(
                f"{who}: {row['flops_per_s'] / 1e9:.1f} GFLOP/s, "
                f"{row['fraction_of_limit']:.0%} of the {row['limit_flops_per_s'] / 1e9:.1f} of the same product alone"
            )


def scale(arguments: list[str]) -> int:
    from benchback.measure import scale

    flags = parse(ScaleFlags, arguments, "scale")
    choice = {"backends": flags.backends, "axes": flags.axes, "peers": flags.peers}
    study = scale.study_for(**choice, largest=flags.largest, blocks=flags.blocks)
    absent = scale.missing_environments(study)
    if flags.plan:
        print_scale_plan(scale.seconds(study), flags.json)
        if absent and not flags.json:
            print(f"not installed: {', '.join(absent)}; get them by {scale.how_to_get(absent)}")
        return 0
    if absent:
        raise InputError(f"--peers: {', '.join(absent)} not installed; get them by {scale.how_to_get(absent)}")
    with measured(study, flags) as store:
        show_scale(store, study, flags.out, flags.json)
    return 0


def print_scale_plan(seconds: Mapping[tuple[str, str], float], as_json: bool) -> None:
    """Print how long each side takes on each axis; a point that several axes share counts to the first of them."""
    axes, sides = (list(dict.fromkeys(place[i] for place in seconds)) for i in (0, 1))
    if as_json:
        rows = [{"axis": axis, "side": side, "seconds": x} for (axis, side), x in seconds.items()]
        print(json.dumps({"seconds": sum(seconds.values()), "rows": rows}, indent=2))
        return
    each = {axis: sum(x for place, x in seconds.items() if place[0] == axis) for axis in axes}
    rows = [
        (side, *(hours(seconds[axis, side]) if (axis, side) in seconds else "-" for axis in axes)) for side in sides
    ]
    rows.append(("all", *(hours(x) for x in each.values())))
    Console().print(table("about, by a rough model; -: it has no such axis", ("side", *axes), rows))
    print(f"{hours(sum(seconds.values()))} in all")


def show_scale(store: "Store", study: "Study", out: Path, as_json: bool) -> None:
    """Write page, tables and chart, and print the tables."""
    from benchback.measure import scale
    from benchback.report import scale as report

    rows = scale.rows(store, study)
    lines, fits = scale.summarise(rows), scale.fits(rows)
    files = report.write(lines, fits, report.provenance(store), out)
    if as_json:
        found = [report.fit_record(*place, fit) for place, fit in fits.items()]
        print(json.dumps({"folder": str(out), "rows": lines, "fits": found}, indent=2))
        return
    for axis, cells in report.rows_by_axis(lines).items():
        Console().print(table(axis, report.COLUMNS, cells))
    Console().print(table("knees and exponents", report.FIT_COLUMNS, report.fit_rows(lines, fits)))
    print(f"{files[0]} shows them with a chart; the tables are beside it as Markdown and CSV")
