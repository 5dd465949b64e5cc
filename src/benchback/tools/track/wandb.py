"""Weights & Biases: offline, a run folder that `wandb sync` can upload later; online only if the user says so.

The key comes from the environment or from `.env` in the working folder, goes to the process that uploads and nowhere
else. Offline that process does not get it either.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchback.errors import InputError
from benchback.tools.track.run import Row, Sink, Tracked

KEY = "WANDB_API_KEY"
KNOWN = (KEY, "WANDB_ENTITY", "WANDB_PROJECT", "WANDB_BASE_URL")
"""Variables read from the environment and from `.env`."""
PROJECT = "benchback"


def write(run: Tracked, folder: Path, online: bool) -> None:
    """Write one W&B run with every row as a step."""
    with writing(run, folder, online) as sink:
        sink.log(run.rows)
        sink.summarise(run.summary)


@contextmanager
def writing(run: Tracked, folder: Path, online: bool) -> Iterator[Sink]:
    """A W&B run without data about the machine, the shell or the code."""
    import wandb

    settings = wandb.Settings(
        mode="online" if online else "offline",
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        silent=True,
        x_disable_meta=True,
        x_disable_stats=True,
    )
    project = os.environ.get("WANDB_PROJECT") or PROJECT
    options = {"project": project, "name": run.name, "group": run.study, "config": dict(run.config)}
    with wandb.init(dir=str(folder), settings=settings, **options) as made:

        def log(rows: Sequence[Row]) -> None:
            for row in rows:
                made.log(row, step=int(row["iteration"]))

        yield Sink(log, lambda summary: made.summary.update(dict(summary)))
    wandb.teardown()
    _tidy(folder)


def _tidy(folder: Path) -> None:
    """Remove all but the run's own folder: the links beside it would point to the temporary folder."""
    made = folder / "wandb"
    for path in made.iterdir():
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            path.rename(folder / path.name)
    made.rmdir()


def settings(environment: Mapping[str, str], dotenv: Path) -> dict[str, str]:
    """Settings of the account; the environment overrides `.env`, of which nothing else is read."""
    found = {}
    if dotenv.is_file():
        for line in dotenv.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.strip().removeprefix("export ").partition("=")
            if name.strip() in KNOWN:
                found[name.strip()] = value.strip().strip("'\"")
    found |= {name: environment[name] for name in KNOWN if environment.get(name)}
    return {name: value for name, value in found.items() if value}


def variables(environment: Mapping[str, str], dotenv: Path, online: bool) -> dict[str, str]:
    """The environment of the process that feeds trackers: the key is included only where it is needed."""
    others = {name: value for name, value in environment.items() if not name.startswith("WANDB_")}
    own = settings(environment, dotenv)
    if not online:
        own.pop(KEY, None)
    return others | own | {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}


def check_account(environment: Mapping[str, str], dotenv: Path) -> None:
    """Refuse to go online without a key."""
    if KEY not in settings(environment, dotenv):
        raise InputError(f"--online needs {KEY} in the environment or in .env; without --online W&B runs stay here")
