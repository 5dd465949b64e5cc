"""Verbs about many backends: list them, prove them equal, set them side by side."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchback.cli.arguments import limit_threads, parse

if TYPE_CHECKING:
    from benchback.measure.store import Store
    from benchback.measure.study import Study


@dataclass(frozen=True)
class ListFlags:
    """Show algorithms, backends, modes, units and environments."""

    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ParityFlags:
    """Measure how far each backend is from a naive float64 oracle and each mode from `none`."""

    algorithm: str = "ppo"
    """Algorithm to measure."""
    backends: tuple[str, ...] = ()
    """Backends to measure; all by default."""
    levels: tuple[str, ...] = ()
    """Levels to measure: L0 forward, L1 one step, L2 twenty, L3 update and iterations, L4 modes and units."""
    dtypes: tuple[str, ...] = ("float32", "float64")
    """Floating-point types to measure."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class PeersFlags:
    """The same PPO work in benchback and its peers: fresh processes, interleaved in blocks, ratios with intervals."""

    quick: bool = False
    """Workload A only, few iterations, two blocks."""
    blocks: int | None = None
    """Runs of every side; 5 by default, 2 with --quick."""
    workloads: tuple[str, ...] = ()
    """A: CartPole 32 x 256, B: CartPole 4 x 128, C: Breakout-MinAtar 32 x 256; all by default."""
    sides: tuple[str, ...] = ()
    """Who to compare; all by default."""
    threads: int = 1
    """CPU threads of every side."""
    store: Path | None = None
    """Where runs are stored, runs/VERB.sqlite by default; the same choices again continue what is unfinished."""
    new_stratum: bool = False
    """Start over on a machine that has changed; runs before and after are never pooled."""
    out: Path | None = None
    """File for the figures of every run, a JSON line each."""
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
    """Throughput and memory over the number of environments, the width of the network and the threads."""

    backends: tuple[str, ...] = ()
    """Backends to scale; linen and pytorch by default."""
    axes: tuple[str, ...] = ()
    """What to vary: envs, width, threads; all by default."""
    largest: int | None = None
    """Leave out larger values."""
    blocks: int = 3
    """Runs of every point."""
    store: Path | None = None
    """Where runs are stored, runs/VERB.sqlite by default; the same choices again continue what is unfinished."""
    new_stratum: bool = False
    """Start over on a machine that has changed; runs before and after are never pooled."""
    out: Path = Path("runs/scale")
    """Folder for scale.csv, scale.png and scale.svg."""
    json: bool = False
    """Print JSON."""


def list_all(arguments: list[str]) -> int:
    from benchback.cli.show_comparisons import print_matrix

    print_matrix(parse(ListFlags, arguments, "list").json)
    return 0


def parity(arguments: list[str]) -> int:
    from benchback import registry
    from benchback.cli.show_comparisons import print_parity
    from benchback.parity import LEVELS, measure

    flags = parse(ParityFlags, arguments, "parity")
    registry.choose("algorithm", flags.algorithm, registry.ALGORITHMS)
    for name in flags.backends:
        registry.choose("backend", name, registry.BACKENDS)
    for level in flags.levels:
        registry.choose("level", level, LEVELS)
    for dtype in flags.dtypes:
        registry.choose("dtype", dtype, ("float32", "float64"))
    limit_threads(1)
    rows = measure(flags.algorithm, flags.backends or tuple(registry.BACKENDS), flags.dtypes, flags.levels or LEVELS)
    return 0 if print_parity(rows, flags.json) else 1


@contextmanager
def measured(study: "Study", flags: PeersFlags | MicroFlags | ScaleFlags) -> Iterator["Store"]:
    """The store of a comparison that is complete; one that was broken off is continued."""
    from benchback.cli.arguments import on_stop
    from benchback.cli.board import watching
    from benchback.measure import coordinator

    stop = on_stop()
    path = flags.store or Path("runs") / f"{study.name}.sqlite"
    with coordinator.open_campaign(path, study, new_stratum=flags.new_stratum) as store:
        with watching(store, as_json=False) as hooks:
            # Parity is the business of studies that claim something about backends.
            complete = coordinator.work(store, study, replace(hooks, asked_to_stop=stop, prove=None))
        if not complete:
            raise KeyboardInterrupt
        yield store


def peers(arguments: list[str]) -> int:
    from benchback.checkpoint import write_atomically
    from benchback.cli.show_comparisons import print_peers
    from benchback.measure import peers

    flags = parse(PeersFlags, arguments, "peers")
    choice = {"quick": flags.quick, "blocks": flags.blocks, "workloads": flags.workloads, "sides": flags.sides}
    with measured(peers.study_for(**choice, threads=flags.threads), flags) as store:
        rows = peers.rows(store)
    if flags.out:
        write_atomically(flags.out, "".join(json.dumps(row) + "\n" for row in rows))
    print_peers(peers.summarise(rows), flags.json)
    return 0


def micro(arguments: list[str]) -> int:
    from benchback.cli.show_comparisons import print_micro
    from benchback.measure import micro

    flags = parse(MicroFlags, arguments, "micro")
    choice = {"quick": flags.quick, "backends": flags.backends, "batches": flags.batches, "rounds": flags.rounds}
    with measured(micro.study_for(**choice, threads=flags.threads), flags) as store:
        print_micro(micro.summarise(store), flags.json)
    return 0


def scale(arguments: list[str]) -> int:
    from benchback.cli.show_comparisons import print_scale
    from benchback.measure import scale

    flags = parse(ScaleFlags, arguments, "scale")
    study = scale.study_for(backends=flags.backends, axes=flags.axes, largest=flags.largest, blocks=flags.blocks)
    with measured(study, flags) as store:
        lines = scale.summarise(scale.rows(store, study))
    scale.write(lines, flags.out)
    print_scale(lines, flags.out, flags.json)
    return 0
