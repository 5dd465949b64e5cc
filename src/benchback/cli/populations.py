"""`benchback train` of a population: which members are meant, their progress and their outcome."""

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchback import registry
from benchback.cli.arguments import each, limit_threads, on_interrupt
from benchback.cli.reporter import Reporter
from benchback.cli.tables import jsonable
from benchback.cli.training import TrainFlags, monitor_of
from benchback.errors import InputError
from benchback.population.folder import Stored, is_population, open_any, open_population
from benchback.population.spec import Population, members_of, parse_vary
from benchback.training.checkpoint import Checkpoint

if TYPE_CHECKING:
    from benchback.cli.parallel import Joined
    from benchback.population.training import Begun, Trained

FORCED = "xla_force_host_platform_device_count"
MOST_SHOWN = 5
"""Members that diverged which are named one by one."""


@dataclass(frozen=True)
class Origin:
    """Where a training goes on from."""

    path: Path | None
    """Folder to continue in; None for a member, which gets a folder of its own."""
    checkpoint: Checkpoint
    stored: Stored | None = None
    """The population, if it is one."""


def opened(name: str) -> Origin:
    """The run, the population or the member of one that `--resume` names."""
    if is_population(Path(name)):
        stored = open_population(Path(name))
        return Origin(Path(name), stored.checkpoint, stored)
    if Path(name).is_file():
        raise InputError(f"--resume {name} is a file without all that training needs; resume its run folder")
    folder, member, checkpoint = open_any(name)
    return Origin(folder if member is None else None, checkpoint)


def asked_for(flags: TrainFlags, origin: Origin | None) -> Population | None:
    """The population that the flags describe or continue; None for a single agent."""
    members = [name for name in ("seeds", "vary", "population", "sampling") if getattr(flags, name) not in (None, ())]
    choices = {
        name: getattr(flags, name) for name in ("keep", "group", "devices", "thin") if getattr(flags, name) is not None
    }
    if origin and members:
        raise InputError(f"--{members[0]}: who is trained is settled by --resume {flags.resume}; leave one of them out")
    if origin and origin.stored:
        return replace(origin.stored.asked, **choices)
    if not members:
        if named := sorted(choices.keys() - {"devices"}):
            raise InputError(f"--{named[0]} is about a population; give --seeds N or --vary FIELD=VALUE,VALUE too")
        return None
    seeds = 1 if flags.seeds is None else flags.seeds
    return Population(parse_vary(flags.vary), flags.population, seeds, flags.sampling, **choices)


def over_processors(asked: Population, flags: TrainFlags) -> Population:
    """The population divided over as many CPU devices as there are processors, if nobody has said otherwise.

    `--devices` and `--threads` are followed; a resumed population keeps what it had. Devices of other kinds are not
    divided unasked. The CPU devices are made here, unless a module of the user has imported jax before.
    """
    if flags.on is not None:
        return replace(asked, devices=1)  # of this machine: nodes have theirs
    settled = "jax" in sys.modules or FORCED in os.environ.get("XLA_FLAGS", "")
    if settled or not registry.BACKENDS[flags.run.backend].populations:
        return asked
    count = asked.devices
    if flags.resume is None and flags.devices is None and flags.threads == 1:
        count = even_share(len(members_of(asked, flags.run)))
    if count == 1 or (flags.resume is None and flags.devices is not None):
        return asked
    limit_threads(max(count, flags.threads))
    import jax

    jax.config.update("jax_num_cpu_devices", count)
    return replace(asked, devices=count) if jax.default_backend() == "cpu" else asked


def even_share(size: int) -> int:
    """The largest number of this process's processors that divides so many members evenly."""
    return next(n for n in range(len(os.sched_getaffinity(0)), 0, -1) if size % n == 0)


class PopulationReporter(Reporter):
    """Shows mean and spread over the members, and the best of them."""

    def status(self) -> str:
        if not self.last_row:
            return "no episode ended yet"
        mean, std, most = (self.last_row[f"episode_return{ending}"] for ending in ("", "_std", "_max"))
        return f"return {mean:.1f} +- {std:.1f}, best {most:.1f} (#{self.last_row['best_member']})"


def run_population(flags: TrainFlags, asked: Population, origin: Origin | None, joined: "Joined | None" = None) -> int:
    """Train the population and show its progress. When interrupted, it ends after the current call."""
    from benchback.cli.parallel import members_trainer
    from benchback.population.training import train_population
    from benchback.tools.track.live import tracking

    report = PopulationReporter(flags.run, origin.checkpoint.iteration if origin else 0, flags.json)
    interrupted = on_interrupt()
    with (
        report.bar,
        tracking(flags.run, flags.track, flags.online, report.warn) as track,
        members_trainer(flags, joined, interrupted, report.warn) as (trainer, width),
    ):

        def begin(begun: "Begun") -> None:
            report.agents = len(begun.members)
            print_begin(begun, flags.json)
            track.begin(begun.folder)

        trained = train_population(
            flags.run,
            asked,
            trainer=trainer,
            width=width,
            out=flags.out,
            origin=origin.stored if origin else None,
            checkpoint_every=flags.checkpoint_every,
            monitor=monitor_of(flags, origin),
            on_begin=begin,
            on_rows=each(report, track.log),
            asked_to_stop=interrupted,
        )
    print_trained(trained, flags.json)
    if len(trained.diverged) == len(trained.members):
        return 1
    return 130 if trained.interrupted else 0


def print_begin(begun: "Begun", as_json: bool) -> None:
    """Print how many members there are, what differs between them, and how they are run."""
    size, varied = len(begun.members), list(begun.members.values)
    if as_json:
        about = {"members": size, "varied": varied, "group": begun.asked.group, "folder": str(begun.folder.path)}
        print(json.dumps({"event": "population"} | about), flush=True)
    else:
        differ = f"differ in {', '.join([*varied, 'seed'])}" if varied else "differ in their seeds"
        print(f"{size} members, which {differ}; {begun.group}", file=sys.stderr)


def print_trained(trained: "Trained", as_json: bool) -> None:
    """Print mean and spread over the members, the best one with its values, and the folder."""
    known = trained.scores[~np.isnan(trained.scores)]
    best: dict[str, Any] = {"member": trained.best, "seed": trained.members.seed[trained.best]}
    best |= trained.members.point(trained.best)
    path = trained.folder.path
    if as_json:
        ended = {"event": "interrupted" if trained.interrupted else "done", "folder": str(path), "members": known.size}
        ended |= {"diverged": dict(trained.diverged)}
        ended |= {} if trained.reached is None else {"reached": trained.reached}
        outcome = {"mean": known.mean(), "std": known.std(), "best": best | {"mean": known.max()}} if known.size else {}
        print(
            json.dumps(ended | {name: jsonable(x) if isinstance(x, dict) else float(x) for name, x in outcome.items()})
        )
    elif trained.interrupted:
        print(f"interrupted; continue with: benchback train --resume {path}")
    elif not known.size:
        print(f"no episode ended, or nothing was left to train; files in {path}")
    else:
        values = ", ".join(f"{name} {x:.4g}" for name, x in best.items() if name != "member")
        print(
            f"return {known.mean():.1f} +- {known.std():.1f} over {known.size} members; "
            f"best {path}#{trained.best}: {known.max():.1f} ({values}); files in {path}"
        )
    if not as_json:
        print_early(trained)


def print_early(trained: "Trained") -> None:
    """Print what ended training early, and which members diverged."""
    if trained.reached is not None:
        print(f"the members' mean return reached {trained.reached:.1f} in iteration {trained.iteration}")
    lost = trained.diverged
    if lost:
        shown = ", ".join(f"#{index} in iteration {lost[index]}" for index in list(lost)[:MOST_SHOWN])
        more = f" and {len(lost) - MOST_SHOWN} more" if len(lost) > MOST_SHOWN else ""
        print(f"{len(lost)} of {len(trained.members)} members diverged ({shown}{more}); lower their learning rates")
