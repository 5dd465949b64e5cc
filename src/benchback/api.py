"""benchback as a library: `import benchback as bb`.

`train` and `load` for agents, `weights` for their networks in any framework, `run`, `read` and `advise` for
measurements. Mistakes that a caller can fix raise `InputError`. Importing this module imports neither jax nor torch;
a call imports the framework that it needs.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import polars

from benchback import registry
from benchback.agent import Weights, networks
from benchback.analysis.frames import Frames, read
from benchback.errors import InputError
from benchback.measure.candidates import Question
from benchback.measure.coordinator import Hooks
from benchback.measure.study import Study
from benchback.population import folder as folders
from benchback.population.folder import PopulationDir
from benchback.population.spec import Members, Population
from benchback.tools import advise as advising
from benchback.tools.play import Episode, record
from benchback.training import run_dir
from benchback.training.acting import Actor, parameters
from benchback.training.checkpoint import Checkpoint
from benchback.training.evaluate import evaluate
from benchback.training.monitor import Monitor
from benchback.training.rows import read_rows
from benchback.training.run import Run
from benchback.training.run_dir import Finished, RunDir, train_run

__all__ = [
    "Frames",
    "Policy",
    "Progress",
    "Result",
    "Results",
    "advise",
    "load",
    "read",
    "run",
    "train",
    "weights",
]

Vary = Mapping[str, str | Sequence[float | int]]
"""Field -> its values, or a range such as `log:1e-5..1e-2`."""


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each iteration."""

    iteration: int
    """Completed iterations."""
    env_steps: int
    """Environment steps so far; in a population, those of one member."""
    seconds: float
    """Seconds of training so far, compilation included."""
    metrics: Mapping[str, float]
    """Metrics of the iteration; in a population, their mean over members (`loss`) and spread (`loss_std`, ...)."""


Callback = Callable[[Progress], bool | None]
"""Called after each iteration; True stops training after the program call that the iteration belongs to."""


class Policy:
    """A trained agent that acts greedily."""

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint
        """All that training needs to go on; see `weights` for the networks alone."""
        self.run = Run.from_dict(checkpoint.run)
        """Everything that determined its training."""

    def __repr__(self) -> str:
        trained = f"{self.run.algorithm} in {self.run.backend} on {self.run.env}"
        return f"<{type(self).__name__}: {trained}, {self.checkpoint.iteration} iterations>"

    @property
    def weights(self) -> Weights:
        """The networks under canonical names: `actor/0/kernel` is `[in, out]` whatever trained it."""
        return networks(self.checkpoint.weights)

    @cached_property
    def _actor(self) -> Actor:
        return Actor(self.run, self.checkpoint.weights)

    def act(self, obs: Any) -> np.ndarray:
        """The greedy action for one observation, or those for a batch of them; NumPy in, NumPy out.

        Each size of a batch is compiled once. A network with a memory keeps it from call to call until `reset`.
        """
        return self._actor(np.asarray(obs))

    def reset(self) -> None:
        """Begin a new episode: a network with a memory forgets."""
        self._actor.reset()

    def evaluate(self, episodes: int = 32, seed: int = 1) -> np.ndarray:
        """Returns of so many greedy episodes; NaN where one did not end within 100,000 steps."""
        if episodes < 1:
            raise InputError(f"episodes={episodes} must be at least 1")
        return evaluate(self.run, self.checkpoint.weights, episodes, seed)

    def play(
        self, out: str | Path = "video.mp4", *, episodes: int = 1, max_steps: int = 1000, seed: int = 1
    ) -> list[Episode]:
        """Write a video, .mp4 or .gif, of so many greedy episodes, and return their outcomes."""
        how = {"episodes": episodes, "max_steps": max_steps, "seed": seed}
        return record(self.run, self.checkpoint.weights, Path(out), **cast(Any, how))


class Result(Policy):
    """A training and the agent that came out of it."""

    def __init__(self, folder: RunDir, finished: Finished | None = None, owner: Any = None):
        super().__init__(run_dir.open_run(folder.path)[1])
        self._folder, self._owner = folder, owner  # a temporary folder lasts as long as its owner
        self.iteration = self.checkpoint.iteration
        """Completed iterations."""
        self.reached = finished.reached if finished else None
        """The return that ended training early, where `stop_at` was given and reached."""

    @cached_property
    def metrics(self) -> polars.DataFrame:
        """A row for each iteration: `iteration`, `env_steps`, `seconds`, `episode_return`, losses and so on."""
        return _frame(self._folder.metrics)

    @cached_property
    def returns(self) -> np.ndarray:
        """Mean return of the episodes that ended in each iteration; NaN where none did."""
        return self.metrics["episode_return"].cast(polars.Float64).to_numpy()

    @cached_property
    def evaluations(self) -> polars.DataFrame:
        """A row for each evaluation while it trained; empty without `evaluate_every`."""
        return _frame(self._folder.evaluations)

    @property
    def best(self) -> Policy:
        """The agent of the best evaluation while it trained."""
        return load(self._folder.path, best=True)

    def save(self, path: str | Path) -> Path:
        """Write the run folder that `benchback train` would have written, which must not exist yet."""
        return _copied(self._folder.path, Path(path))


class Results:
    """A population: arrays have a member axis in front."""

    def __init__(self, folder: PopulationDir, diverged: Mapping[int, int], reached: float | None, scores: np.ndarray):
        self._folder, self._stored = folder, folders.open_population(folder.path)
        self.members: Members = self._stored.members
        """The seed of each member, and its value of each varied field."""
        self.run = Run.from_dict(self._stored.checkpoint.run)
        """What the members have in common."""
        self.iteration = self._stored.checkpoint.iteration
        self.diverged = dict(diverged)
        """Member -> the first iteration in which its learning was not finite."""
        self.reached = reached
        """The mean return of all members that ended training early, where `stop_at` was given and reached."""
        self.scores = scores
        """Mean return of each member over the last tenth of the iterations, `[members]`."""

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def metrics(self) -> polars.DataFrame:
        """A row for each iteration and member; of more than 2,000 iterations for each bucket of them and member."""
        parts = list(self._folder.parts().values())
        return polars.read_parquet(parts).sort("iteration", "member")

    def array(self, metric: str) -> np.ndarray:
        """One metric of every member and iteration, or bucket of iterations, `[members, iterations]`."""
        registry.choose("metric", metric, self.metrics.columns)
        return self.metrics[metric].to_numpy().reshape(-1, len(self)).T

    @property
    def returns(self) -> np.ndarray:
        """Mean return of the episodes that ended, `[members, iterations]`; NaN where none did."""
        return self.array("episode_return")

    @property
    def weights(self) -> Weights:
        """The networks under canonical names, each array with a member axis in front."""
        return networks(self._stored.checkpoint.weights)

    @property
    def best(self) -> int:
        """The member with the highest score; 0 if none has one."""
        return int(np.where(np.isnan(self.scores), -np.inf, self.scores).argmax())

    def member(self, index: int) -> Result:
        """One member, as if it had been trained alone."""
        if not 0 <= index < len(self):
            raise InputError(f"member={index} must be 0 to {len(self) - 1}")
        folders.keep(self._folder, self.members, [index])
        return Result(self._folder.member(index), owner=self)

    def save(self, path: str | Path) -> Path:
        """Write the folder that `benchback train --seeds` would have written, which must not exist yet."""
        return _copied(self._folder.path, Path(path))


@overload
def train(
    algorithm: str | Run = ..., *, seeds: None = None, vary: None = None, population: None = None, **options: Any
) -> Result:
    """One agent."""


@overload
def train(algorithm: str | Run = ..., *, seeds: int | None = ..., vary: Vary | None = ..., **options: Any) -> Results:
    """Many agents in one program."""


def train(
    algorithm: str | Run = registry.DEFAULT_ALGORITHM,
    *,
    seeds: int | None = None,
    vary: Vary | None = None,
    population: int | None = None,
    sampling: str | None = None,
    out: str | Path | None = None,
    callback: Callback | None = None,
    evaluate_every: int | None = None,
    evaluate_episodes: int = 16,
    stop_at: float | int | None = None,
    checkpoint_every: int | None = None,
    **fields: Any,
) -> Result | Results:
    """Train an agent and return it with its metrics; with `seeds` or `vary`, many agents in one program.

    `fields` are those of a run: `env`, `backend`, `seed`, `num_iterations`, `learning_rate` and so on, as the flags of
    `benchback train` and the keys of config.yaml. Without `out` nothing is left on disk. With `evaluate_every` the
    agent is evaluated greedily every so many environment steps, and `Result.best` is the best of them; `stop_at` ends
    training at a return. Raises Diverged if a loss or a weight is no longer finite.
    """
    run = _run(algorithm, fields, train.__kwdefaults__ or ())
    monitor = Monitor(evaluate_every, evaluate_episodes, None if stop_at is None else float(stop_at))
    watching = _Callbacks(callback)
    options: dict[str, Any] = {"checkpoint_every": checkpoint_every, "monitor": monitor}
    options |= {"on_rows": watching, "asked_to_stop": lambda: watching.stop}
    with _Place(out) as place:
        if seeds is vary is population is sampling is None:
            finished = train_run(run, out=place.path, **options)
            return place.kept(Result(finished.run_dir, finished))
        from benchback.population.training import train_population

        asked = Population(vary or {}, population, 1 if seeds is None else seeds, cast(Any, sampling))
        trained = train_population(run, asked, out=place.path, **options)
        return place.kept(Results(trained.folder, trained.diverged, trained.reached, trained.scores))


def load(path: str | Path, *, best: bool = False) -> Policy:
    """The agent of a run folder, of a member of a population (`RUN#17`) or of a checkpoint file.

    `best` asks for that of the best evaluation while it trained.
    """
    return Policy(folders.open_any(str(path), best=best)[2])


def weights(path: str | Path, framework: str) -> Any:
    """The online networks of a checkpoint as a framework's own parameters, for a module of one's own.

    linen: a params dictionary; nnx: an `nnx.State` for `nnx.update`; equinox: a module; haiku: a params dictionary;
    purejax: lists of dictionaries; pytorch: a state_dict. `path` is as for `load`.
    """
    policy = load(path)
    return parameters(policy.run, policy.checkpoint.weights, framework)


def run(
    study: Study | str | Path,
    store: str | Path | None = None,
    *,
    budget: float | int | str | None = None,
    seed: int | None = None,
    note: str = "",
    new_stratum: bool = False,
    hooks: Hooks | None = None,
) -> Frames:
    """Run a study, or continue it, in isolated processes, and return what is known.

    `study` may be the name of one that ships, a YAML file or a `Study`; `store` is by default runs/NAME.sqlite;
    `budget` is in seconds, or `5m`; the rest is as for `benchback run`. `hooks` are called between runs.
    """
    from benchback.measure import budget as budgets
    from benchback.measure import coordinator
    from benchback.measure import study as studies

    chosen = study if isinstance(study, Study) else studies.load(str(study))
    if budget is not None:
        chosen = budgets.within(chosen, budgets.seconds_of(budget) if isinstance(budget, str) else float(budget))
    path = Path(store) if store else Path("runs") / f"{chosen.name}.sqlite"
    with coordinator.open_campaign(path, chosen, seed=seed, note=note, new_stratum=new_stratum) as opened:
        coordinator.work(opened, chosen, hooks or Hooks())
    return read(path)


def advise(
    algorithm: str = registry.DEFAULT_ALGORITHM,
    *,
    steps: float | int = 1e6,
    seeds: int = 1,
    budget: float | int | str = "3m",
    backends: Sequence[str] = (),
    threads: int = 1,
    device: str = "cpu",
    hooks: advising.Hooks | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Which backend to choose for a project of so many steps and seeds, measured here and now within the budget.

    `fields` are those of a run, such as `env`, `hidden_sizes` and `num_envs`. Returns what `benchback advise --json`
    prints: `sentence`, `candidates` with their predicted times, `crossings` and so on. `hooks` say how it is measured.
    """
    from benchback.analysis.advice_wording import record_of
    from benchback.measure.budget import seconds_of
    from benchback.measure.trials import trials

    if not 1 <= steps < 1e15:
        raise InputError(f"steps={steps:g} must be at least 1 and less than 1e15, e.g. 1e7")
    chosen = tuple(dict.fromkeys(backends)) or tuple(registry.BACKENDS)
    plain = {name: list(x) if isinstance(x, tuple) else x for name, x in fields.items()}
    question = Question({"algorithm": algorithm, **plain}, round(steps), seeds, chosen, threads, device)
    budget_s = seconds_of(budget) if isinstance(budget, str) else float(budget)
    with trials() as run_trial:
        return record_of(advising.advise(question, budget_s, hooks or advising.Hooks(run_trial)))


def _run(algorithm: str | Run, fields: Mapping[str, Any], options: Iterable[str]) -> Run:
    """The run of these fields, without those that are None; an unknown one may be meant as one of the options."""
    base = algorithm.to_dict() if isinstance(algorithm, Run) else {"algorithm": algorithm}
    return Run.from_dict(base | {name: x for name, x in fields.items() if x is not None}, options)


def _frame(path: Path) -> polars.DataFrame:
    rows = read_rows(path)
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    return polars.DataFrame({name: _numbers(texts) for name, texts in columns.items()})


def _numbers(texts: Sequence[str]) -> list[int] | list[float]:
    return [int(x) for x in texts] if all(x.isdigit() for x in texts) else [float(x) for x in texts]


def _copied(source: Path, path: Path) -> Path:
    run_dir.check_free(path)
    shutil.copytree(source, path)
    return path


class _Callbacks:
    """Calls the callback for every row, and remembers whether it wants to stop."""

    def __init__(self, callback: Callback | None):
        self.callback, self.stop = callback, False

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            if self.callback is None:
                return
            index = {name: row[name] for name in ("iteration", "env_steps", "seconds")}
            metrics = {name: float(x) for name, x in row.items() if name not in index}
            self.stop = bool(self.callback(Progress(**index, metrics=metrics))) or self.stop


class _Place:
    """Where training writes: the given folder, or a temporary one that lasts as long as the result."""

    def __init__(self, out: str | Path | None):
        self.temporary = Path(tempfile.mkdtemp(prefix="benchback-")) if out is None else None
        self.path = Path(out) if out is not None else Path(cast(Path, self.temporary)) / "run"

    def __enter__(self) -> "_Place":
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if kind is not None and self.temporary:
            shutil.rmtree(self.temporary, ignore_errors=True)
            error.args = getattr(error, "without_folder", error.args)

    def kept(self, result: Any) -> Any:
        if self.temporary:
            weakref.finalize(result, shutil.rmtree, self.temporary, ignore_errors=True)
        return result
