"""`benchback run`: run a study in isolated processes, or continue it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from benchback import envs, registry
from benchback.cli.arguments import each, on_stop
from benchback.cli.planning import PlanFlags, chosen_study
from benchback.errors import InputError
from benchback.measure.study import Study

if TYPE_CHECKING:
    from benchback.measure.coordinator import Hooks
    from benchback.measure.store import Store

FAILED_RUNS = 3
"""Exit code of a complete campaign in which some runs have no result."""


@dataclass(frozen=True)
class RunFlags(PlanFlags):
    """Run a study, each run in a fresh process. Run it again to continue where it stopped."""

    store: Path | None = None
    """Store of the campaign; by default runs/STUDY.sqlite."""
    note: str = ""
    """Free text kept with the campaign."""
    new_stratum: bool = False
    """Continue on a machine that has changed; runs before and after are never pooled."""
    in_process: bool = False
    """Without isolation, for debugging; the records say so."""
    on: str | None = None
    """Cluster that runs it: ray://HOST:PORT, ray:auto, or ray:local=2 for two nodes on this machine, to try it."""
    ship: bool = False
    """Send this package's code to the machines of the cluster, where other code would be refused."""
    track: tyro.conf.UseAppendAction[tuple[Literal["csv", "tensorboard", "wandb"], ...]] = ("csv",)
    """Also give every finished run to this tracker; it writes beside the store. May be given more than once."""
    online: bool = False
    """Let W&B upload, with WANDB_API_KEY from the environment or .env; otherwise its runs stay on this machine."""


def run(arguments: list[str]) -> int:
    from benchback.cli.board import noise_of, noise_text, out_of_time_text, stopped_text, watching
    from benchback.cli.outcomes import print_outcome
    from benchback.measure.launch import in_process
    from benchback.tools.track import feeder

    stop = on_stop()
    study, flags = chosen_study(arguments, "run", RunFlags)
    check_runnable(study)
    trackers = tuple(dict.fromkeys(flags.track))
    feeder.check(trackers, flags.online)
    path = flags.store or Path("runs") / f"{study.name}.sqlite"
    launch = in_process if flags.in_process else None
    with campaign(path, study, flags, stop) as (store, work):
        with watching(store, flags.json) as hooks:
            feeding = feeder.Feeder(store, trackers, flags.online, stop, hooks.log)
            feeding.catch_up()
            finished = each(hooks.finished, feeding.finished)
            complete = work(replace(hooks, asked_to_stop=stop, launch=launch, finished=finished))
        if not complete:
            raise KeyboardInterrupt(stopped_text(store))
        noise = noise_of(store)
        if flags.json:
            print(json.dumps({"event": "noise"} | asdict(noise)))
        failed = print_outcome(store, flags.json)
        if not flags.json:
            print(f"{noise_text(noise)}\n{out_of_time_text(store)}the whole report: benchback report {path}")
            if len(store.strata()) > 1:
                print(f"its machines compared: benchback compare {path}")
    return FAILED_RUNS if failed else 0


@contextmanager
def campaign(
    path: Path, study: Study, flags: RunFlags, stop: Callable[[], bool]
) -> "Iterator[tuple[Store, Callable[[Hooks], bool]]]":
    """The store of the campaign, and the function that works on it: on this machine, or on a cluster."""
    from benchback.measure import coordinator

    if flags.on is None:
        if flags.ship:
            raise InputError("--ship sends code to a cluster; add --on")
        options = {"seed": flags.seed, "note": flags.note, "new_stratum": flags.new_stratum}
        with coordinator.open_campaign(path, study, **options) as store:
            yield store, lambda hooks: coordinator.work(store, study, hooks)
        return
    from benchback.measure.cluster import stations_of
    from benchback.measure.driver import Driver
    from benchback.measure.nodes import place_of
    from benchback.measure.process import Interrupted

    place = place_of(flags.on)
    check_for_cluster(study, flags)
    with stations_of(place, study, ship=flags.ship) as stations:
        try:
            first = stations.first(stop)
        except Interrupted:
            raise KeyboardInterrupt("stopped before a machine joined") from None
        options = {"seed": flags.seed, "note": flags.note, "fingerprint": first.fingerprint, "many": True}
        with coordinator.open_campaign(path, study, **options) as store:
            yield store, lambda hooks: Driver(store, study, hooks, stations, [first]).work()


def check_for_cluster(study: Study, flags: RunFlags) -> None:
    """Raise an InputError if a study or its flags cannot be run on a cluster."""
    if not study.relays:
        raise InputError("--on runs relays, and this study has none; leave out --on, or add --protocol relay")
    if flags.in_process or flags.new_stratum:
        given = "--in-process" if flags.in_process else "--new-stratum"
        raise InputError(f"{given} is for one machine; leave it out, or --on")


def check_runnable(study: Study) -> None:
    """Raise an InputError that names the extra if a package that the study needs is not installed."""
    # A cell of operations has many programs, each with its backend; sides of peers are no backends of ours.
    parts = [part for cell in study.cells for part in (cell.run, *cell.run.get("programs", ()))]
    for name in dict.fromkeys(str(part.get("backend")) for part in parts):
        try:
            if name in registry.BACKENDS:
                registry.check_installed(name)
        except InputError as error:
            own = "for a study without it start from benchback studies STUDY --yaml > mine.yaml"
            raise InputError(f"{error}; {own}") from None
    for env in dict.fromkeys(cell.run.get("env") for cell in study.cells if cell.kind == "training"):
        envs.check_installed(str(env))
