"""`benchback advise`: which backend to choose for a project, measured here and now."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from benchback import registry
from benchback.cli.arguments import Imports, on_stop, parse, tell_notes, with_config
from benchback.cli.tables import hours, jsonable
from benchback.errors import InputError

if TYPE_CHECKING:
    from benchback.analysis.advice import Answer
    from benchback.measure.candidates import Question

NOT_ASKED = ("backend", "mode", "unit", "chunk", "seed", "num_iterations")
"""Fields of a run that the answer chooses, or that follow from the steps."""


@dataclass(frozen=True)
class AdviseFlags:
    """Measure every backend on a project and predict how long the whole project takes with each of them."""

    algorithm: str | None = None
    """Algorithm; `benchback list` shows them. By default that of --config, else the first."""
    env: str | None = None
    """Environment as suite/name; by default the algorithm's."""
    hidden: tuple[int, ...] = ()
    """Hidden layers, e.g. --hidden 256 256; by default the algorithm's."""
    steps: float = 1e6
    """Environment steps of one training, e.g. 1e7."""
    seeds: int = 1
    """Seeds of the project: each in a process of its own, and for backends that can, many in one program."""
    num_envs: int | None = None
    """Parallel environments; by default the algorithm's."""
    num_steps: int | None = None
    """Steps per environment and rollout; by default the algorithm's."""
    config: Path | None = None
    """YAML file with any fields of the run (as config.yaml in a run folder); flags override it."""
    budget: str = "3m"
    """Time for measuring, e.g. 90s, 3m or 1h."""
    backends: tuple[str, ...] = ()
    """Backends to compare; all by default."""
    threads: int = 1
    """CPU threads of every training."""
    device: Literal["cpu", "gpu"] = "cpu"
    out: Path | None = None
    """Page to write, one HTML file with a chart of time over steps."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def advise(arguments: list[str]) -> int:
    from benchback.measure.budget import seconds_of
    from benchback.measure.trials import trials
    from benchback.tools.advise import Hooks, advise
    from benchback.training.checkpoint import write_atomically

    flags = parse(AdviseFlags, arguments, "advise")
    if flags.out:
        check_page(flags.out)
    question, budget_s = question_of(flags), seconds_of(flags.budget)
    tell_notes(question.env)
    stop = on_stop()
    with trials() as run_trial, watching() as progress:
        answer = advise(question, budget_s, Hooks(run_trial, stop, progress=progress))
    if flags.out:
        from benchback.report.advice import page

        flags.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(flags.out, page(answer))
    print_answer(answer, flags.json)
    if flags.out and not flags.json:
        print(f"open: {flags.out}")
    return 130 if answer.interrupted else 0


def check_page(out: Path) -> None:
    """Raise an InputError unless the page can be written; one of an earlier answer is replaced, nothing else."""
    from benchback.training.outputs import check_writable

    if out.is_dir():
        raise InputError(f"{out} is a folder; give the name of a page with --out, e.g. {out / 'advice.html'}")
    if out.exists() and b"<title>benchback" not in out.read_bytes()[:2000]:
        raise InputError(f"{out} exists and is not a page of advise; choose another --out")
    check_writable(out)


def question_of(flags: AdviseFlags) -> "Question":
    """The project that the flags describe."""
    from benchback.measure.candidates import Question

    if flags.algorithm is not None:
        registry.choose("algorithm", flags.algorithm, registry.ALGORITHMS)
    fields = with_config({"algorithm": flags.algorithm or registry.DEFAULT_ALGORITHM}, flags.config, flags.algorithm)
    fields = {name: x for name, x in fields.items() if name not in NOT_ASKED}
    registry.choose("algorithm", fields["algorithm"], registry.ALGORITHMS)
    given = {"env": flags.env, "num_envs": flags.num_envs, "num_steps": flags.num_steps}
    fields |= {name: x for name, x in given.items() if x is not None}
    if flags.import_:
        fields["imports"] = list(dict.fromkeys((*fields.get("imports", ()), *flags.import_)))
    if flags.hidden:
        fields["hidden_sizes"] = list(flags.hidden)
    backends = tuple(dict.fromkeys(flags.backends)) or registry.backends_of(
        fields["algorithm"], fields.get("network", "mlp")
    )
    if not 1 <= flags.steps < 1e15:
        raise InputError(f"steps={flags.steps:g} must be at least 1 and less than 1e15, e.g. 1e7")
    return Question(fields, round(flags.steps), flags.seeds, backends, flags.threads, flags.device)


@contextmanager
def watching() -> Iterator[Callable[[str, float, float], None]]:
    """Progress callback (what, seconds spent, budget), shown as a bar with the time left."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")
    console = Console(stderr=True)
    # No refreshing thread: it would wake up during timed regions.
    with Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None, left="")

        def show(what: str, spent_s: float, budget_s: float) -> None:
            left = f"{hours(max(0.0, budget_s - spent_s))} left"
            if console.is_terminal:
                bar.update(task, description=what, completed=spent_s, total=budget_s, left=left)
                bar.refresh()
            elif not what.startswith("round"):
                console.print(f"{what}, {left}", highlight=False, soft_wrap=True)

        yield show


def print_answer(answer: "Answer", as_json: bool) -> None:
    """Print the table, what to do, and what would change the answer."""
    from benchback.analysis.advice_wording import record_of, remarks, sentence

    if as_json:
        print(json.dumps(jsonable(record_of(answer)), indent=2))
        return
    console = Console()
    console.print(answer_table(answer))
    print(sentence(answer) + "\n")
    for remark in remarks(answer):
        print(f"- {remark}")


def answer_table(answer: "Answer") -> Table:
    """One row per candidate, in at most 80 columns; no cell is broken."""
    from benchback.analysis.advice_wording import COLUMNS, table_rows, title

    made = Table(title=title(answer), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    rows = table_rows(answer)
    for place, column in enumerate(COLUMNS):
        widest = max([*map(len, column.split()), *(len(row[place]) for row in rows)])
        made.add_column(column, justify="right" if place else "left", width=widest)
    for row in rows:
        made.add_row(*row)
    return made
