"""From a space to a campaign: the points are cells, the seeds are blocks, the order is drawn."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchback.errors import InputError
from benchback.measure import coordinator, study
from benchback.measure.store import Store
from benchback.measure.study import Product, Study
from benchback.tools.tune.space import Space, points


def study_of(space: Space, seed: int, *, scale: float = 1.0, threads: int = 1, timeout_s: float = 1800.0) -> Study:
    """The study that runs every point with every seed; what cannot run is refused here."""
    found = Study(
        protocol="runs",  # what counts is the return of a whole training
        name=f"tune-{space.name}"[:64],
        description=space.description,
        products=(Product(axes={"point": points(space, seed)}, label="points", fixed=space.base),),
        min_blocks=space.seeds,
        max_blocks=space.seeds,
        timeout_s=timeout_s,
        aa=False,
        # Points are compared by return, which a busy machine does not change.
        rerun_noisy=False,
        threads=threads,
    )
    return found if scale == 1.0 else study.scaled(found, scale)


def open_tuning(out: Path, tuning: Study, seed: int, *, new_stratum: bool = False) -> Store:
    """The store of the tuning in the folder `out`, made if it is not there; one of another space is refused."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose another --out")
    try:
        return coordinator.open_campaign(store_path(out), tuning, seed=seed, new_stratum=new_stratum)
    except InputError as error:
        raise InputError(str(error).replace("--store", "--out")) from None


def store_path(out: Path) -> Path:
    """Where the tuning in the folder `out` keeps its runs."""
    return out / "runs.sqlite"


def default_name(algorithm: str, backend: str, env: str, varied: Sequence[Any]) -> str:
    """A name made of what is tuned: ppo-linen-cartpole-v1-learning_rate-gamma."""
    words = "-".join((algorithm, backend, env.rpartition("/")[2], *varied)).lower()
    return re.sub(r"[^a-z0-9_-]", "-", words)[:59]
