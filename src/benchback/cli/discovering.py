"""`benchback discover`: evolve PPO's objective, hyper-parameters or a schedule over whole trainings."""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import tyro
from rich.console import Console

from benchback.cli.arguments import (
    Imports,
    leading,
    limit_threads,
    limit_threads_early,
    on_interrupt,
    parse,
    tell_notes,
    value_of,
    with_config,
    with_imports,
)
from benchback.cli.reporter import progress_bar
from benchback.cli.tables import table
from benchback.cli.training import allow_precision
from benchback.errors import InputError
from benchback.population.spec import parse_vary
from benchback.training.run import Run

if TYPE_CHECKING:
    from benchback.tools.discover.evaluation import Contest
    from benchback.tools.discover.search import Asked, Found, Row

Config = TypeVar("Config")
DRAW_EVERY_S = 10.0
"""Seconds between two drawings of the fitness: one takes half a second."""


@dataclass(frozen=True)
class DiscoverFlags(Generic[Config]):
    """Evolve the drift of PPO's objective over whole trainings, or hyper-parameters with --evolve.

    Every vector that is tried is trained from the start with each of the seeds, all of them as one program; fitness is
    the return at the end. Run it again to continue. objective.json in the folder is what train --surrogate learned
    --objective takes, in any backend.
    """

    run: Config
    agents: int = 32
    """Vectors of a generation; even."""
    generations: int = 60
    """Generations; asking for more later continues the same search."""
    strategy: Literal["openes", "snes", "cma_es", "sep_cma_es", "random"] = "openes"
    """Strategy of evosax; openes draws in antithetic pairs. random tries vectors without learning from them."""
    seeds: int = 2
    """Trainings of each vector in each environment; all vectors of a generation have the same seeds."""
    sigma: float = 0.2
    """Standard deviation of what is tried around the mean; where evolution adapts it, the first one."""
    rate: float = 0.05
    """Learning rate of the mean, by Adam; openes only."""
    width: int = 8
    """Hidden units of the drift; --objective FILE begins from a drift of an earlier search instead of none at all."""
    evolve: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """FIELD=LOW..HIGH or FIELD=log:LOW..HIGH: evolve this float of the run instead of a drift; with :KNOTS behind it a
    schedule, epsilons=0..1:6 of DQN. May be given more than once."""
    also: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Further environment to evolve on; fitness is the mean over environments. May be given more than once."""
    transfer: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Environment that is not evolved on and only compared on at the end. May be given more than once."""
    test_seeds: int = 10
    """Fresh seeds of the comparison at the end with the start, random search, clip and drift; 0: no comparison."""
    baseline: bool = True
    """Also run random search with the same budget, to compare with; it takes as long as the search."""
    config: Path | None = None
    """YAML file with fields of the run; flags override it."""
    out: Path | None = None
    """Folder of the search; by default a name under runs/. Continued if it is there."""
    threads: int = 1
    """CPU threads."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print one JSON object per line instead of a progress bar."""


def discover(arguments: list[str]) -> int:
    from benchback import registry

    named, arguments = leading(arguments)
    fields: dict[str, Any] = {"algorithm": registry.DEFAULT_ALGORITHM if named is None else named}
    fields = with_config(fields, value_of("--config", arguments), named)
    limit_threads_early(arguments)
    given = fields | {"surrogate": "learned", "objective": [0] * 9} if value_of("--objective", arguments) else fields
    default = DiscoverFlags(run=Run.from_dict(with_imports(given, arguments)))
    flags_type = DiscoverFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, "discover", default)
    limit_threads(flags.threads)
    allow_precision(flags.run)
    tell_notes(flags.run.env, *flags.also, *flags.transfer)
    asked = asked_for(flags)
    return search(asked, flags)


def asked_for(flags: DiscoverFlags) -> "Asked":
    """The search that the flags describe; an InputError for what makes no sense."""
    from benchback.tools.discover.genomes import Drift, floats_of, no_drift
    from benchback.tools.discover.search import Asked, Settings

    run, evolved = flags.run, parse_vary(flags.evolve, "--evolve")
    if flags.test_seeds == 1 or flags.test_seeds < 0:
        raise InputError(f"--test-seeds {flags.test_seeds} must be at least 2, one has no interval; 0 for none")
    if not evolved:
        if not hasattr(run.config, "surrogate"):
            raise InputError(f"{run.algorithm} has no drift; evolve its floats, e.g. --evolve gamma=0.9..0.999")
        begin = run.config.objective
        genome: Any = Drift(begin) if begin else no_drift(flags.width, run.seed)
        run = replace(run, config=replace(run.config, surrogate="learned", objective=genome.begin))
    else:
        run, genome = floats_of(run, evolved)
    settings = Settings(flags.agents, flags.sigma, flags.rate, run.seed)
    envs = tuple(dict.fromkeys((run.env, *flags.also)))
    asked = Asked(run, genome, envs, flags.strategy, settings, flags.generations, flags.seeds)
    if known := set(flags.transfer) & set(envs):
        raise InputError(f"--transfer {min(known)} is evolved on; name an environment that is not")
    for each in (*asked.runs(), *(replace(run, env=env) for env in flags.transfer)):
        check_population(each)
    return asked


def check_population(run: Run) -> None:
    """Raise an InputError unless trainings of the run can be members of one program."""
    from benchback.population.training import plain

    plain(run)


def search(asked: "Asked", flags: DiscoverFlags) -> int:
    """Run the search, the baseline and the comparison, and print what was found."""
    from benchback.tools.discover import page
    from benchback.tools.discover.fitness import Trainings
    from benchback.tools.discover.search import evolve, open_folder

    out = flags.out or Path("runs") / default_name(asked)
    open_folder(out, asked)
    trainings, stop = Trainings(asked.genome), on_interrupt()
    show = Reporter(asked, out, flags.json)
    with show.bar:
        found = evolve(
            asked,
            out / "search.safetensors",
            trainings,
            on_generation=show.generation,
            asked_to_stop=stop,
        )
        file = page.write_result(out, asked, found.vector, found.history)
        random = baseline(asked, flags, out, trainings, stop, show) if not found.interrupted else None
        if found.interrupted or (random and random.interrupted):
            return interrupted(out, flags.json)
        contests = compare(asked, flags, found, random, trainings, show)
    paths = page.write_page(out, asked, found.vector, found.history, contests)
    print_found(asked, found, contests, [file, *paths], flags.json)
    return 0


def interrupted(out: Path, as_json: bool) -> int:
    print(
        json.dumps({"event": "interrupted", "folder": str(out)}) if as_json else "interrupted; run it again to continue"
    )
    return 130


def baseline(
    asked: "Asked", flags: DiscoverFlags, out: Path, trainings: Any, stop: Callable[[], bool], show: "Reporter"
) -> "Found | None":
    """Random search with the same budget, if it is wanted."""
    from benchback.tools.discover.search import evolve

    if not flags.baseline or not flags.test_seeds or asked.strategy == "random":
        return None
    show.start("random search")
    same = replace(asked, strategy="random")
    path = out / "random.safetensors"
    return evolve(same, path, trainings, on_generation=show.baseline, asked_to_stop=stop)


def compare(
    asked: "Asked", flags: DiscoverFlags, found: "Found", random: "Found | None", trainings: Any, show: "Reporter"
) -> "list[Contest]":
    """What was found beside the others, on fresh seeds, in the environments evolved on and in others."""
    from benchback.tools.discover.evaluation import FOUND, contest, rivals_of
    from benchback.tools.tune.confirm import fresh_seeds

    if not flags.test_seeds:
        return []
    used = {seed for row in found.history for seed in row["seeds"]}
    seeds = fresh_seeds(asked.settings.seed, flags.test_seeds, used)
    vectors = {FOUND: found.vector, "start": asked.genome.start}
    vectors |= {"random search": random.vector} if random else {}
    envs = (*asked.envs, *flags.transfer)
    show.start("fresh seeds", len(envs))
    contests = []
    for env in envs:
        run = replace(asked.run, env=env)
        contests.append(contest(run, vectors, rivals_of(run), trainings, seeds, evolved_on=env in asked.envs))
        show.bar.advance(show.task)
    return contests


def default_name(asked: "Asked") -> str:
    """The name of the folder of a search."""
    env = "-".join(x.replace("/", "-") for x in asked.envs)
    return f"discover-{asked.run.algorithm}-{env}-{asked.strategy}-{asked.settings.seed}"[:120]


class Reporter:
    """Shows the progress of a search: a bar on a terminal, lines otherwise, JSON lines for machines; and draws it."""

    def __init__(self, asked: "Asked", out: Path, as_json: bool):
        self.asked, self.out, self.as_json, self.drawn_s = asked, out, as_json, -math.inf
        self.console = Console(stderr=True)
        self.bar = progress_bar(self.console, hidden=as_json)
        self.task = self.bar.add_task(asked.strategy, total=asked.generations, status="compiling")

    def start(self, name: str, total: int | None = None) -> None:
        """Begin another part."""
        self.task = self.bar.add_task(name, total=total or self.asked.generations, status="")

    def generation(self, history: "Sequence[Row]", vector: Any) -> None:
        """Show the newest generation, and write what it has come to and the figure of fitness."""
        from benchback.tools.discover import page

        page.write_result(self.out, self.asked, vector, history)
        if time.monotonic() - self.drawn_s > DRAW_EVERY_S or len(history) == self.asked.generations:
            page.write_fitness(self.out, self.asked, history)
            self.drawn_s = time.monotonic()
        self.tell(history, self.asked.strategy)

    def baseline(self, history: "Sequence[Row]", vector: Any) -> None:
        """Show the newest generation of random search."""
        self.tell(history, "random search")

    def tell(self, history: "Sequence[Row]", name: str) -> None:
        """A line, or the bar, with the time that is left."""
        from benchback.tools.discover.search import environments

        row, done, total = history[-1], len(history), self.asked.generations
        found = environments(row)
        status = ", ".join(f"return {x['result']:.4g} (start {x['start']:.4g})" for x in found.values())
        self.bar.update(self.task, completed=done, status=status)
        # The first one compiles.
        pace = [x["seconds"] for x in history[1:]] or [row["seconds"]]
        left_s = sum(pace) / len(pace) * (total - done)
        if self.as_json:
            about = {"event": "generation", "search": name, "generation": done, "left_s": left_s}
            print(json.dumps(about | row), flush=True)
        elif not self.console.is_terminal:
            print(f"{name}: generation {done}/{total}  {status}  {left_s:.0f} s left", file=sys.stderr, flush=True)


def print_found(
    asked: "Asked", found: "Found", contests: "Sequence[Contest]", paths: Sequence[Path], as_json: bool
) -> None:
    """Print the returns of all contestants, what follows from them, and the files."""
    from benchback.tools.discover.evaluation import FOUND, mean_text, sentence

    if as_json:
        about = {"event": "found", "fields": asked.genome.fields(found.vector), "files": [str(x) for x in paths]}
        print(json.dumps(about | {"contests": [x.to_dict() for x in contests]}))
        return
    if contests:
        names = list(contests[0].scores)
        rows = [
            (f"{x.env}{'' if x.evolved_on else ' (not evolved on)'}", *(mean_text(x.scores[name]) for name in names))
            for x in contests
        ]
        title = f"return at the end of training, {len(contests[0].scores[FOUND])} fresh seeds"
        Console().print(table(title, ("environment", *names), rows))
        for each in contests:
            for name in names[1:]:
                print(sentence(each, name))
    use = "train --surrogate learned --objective" if paths[0].suffix == ".json" else "train --config"
    print(f"train with it: benchback {use} {paths[0]}")
    print(f"page and files: {paths[-1]}")
