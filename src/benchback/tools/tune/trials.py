"""Searches by Optuna's samplers, for fields of any kind: one point after another, each proposed from those before.

A point is a population of its seeds. Points of the same shape share their compiled program. A search that is continued
asks the sampler again from the first point on and tells it the scores that are stored, so it proposes the same.
Optuna is the extra `optuna`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

from benchback import registry
from benchback.errors import InputError
from benchback.population.ranges import Range
from benchback.tools.tune.programs import programs_of
from benchback.tools.tune.result import text
from benchback.tools.tune.searching import Row, Search, train_program
from benchback.tools.tune.space import Space, known_fields

SAMPLERS = {"tpe": "TPESampler", "random": "RandomSampler", "cmaes": "CmaEsSampler"}
"""Name -> class in optuna.samplers."""
PROGRAMS = 8
"""Compiled programs that are kept."""


def check_installed() -> None:
    """Raise an InputError that names the extra unless Optuna is installed."""
    if find_spec("optuna") is None:
        raise InputError("--method optuna needs a package that is not installed: pip install 'benchback[optuna]'")


def train_trials(search: Search, told: Callable[[int, Row], None] = lambda number, row: None) -> list[Row]:
    """A row for each point that the sampler proposed, in order; KeyboardInterrupt if asked to stop."""
    check_installed()
    import optuna

    from benchback.population.training import built, train_members

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=_sampler(search.settings.sampler, search.seed))
    trainer = search.trainer or partial(train_members, build=lru_cache(PROGRAMS)(built))
    rows = []
    for number in range(search.space.points):
        trial = study.ask()
        (program,) = programs_of(search.base, [proposed(trial, search.space)], search.seeds)
        search.hooks.begun(number, program)
        (row,) = train_program(search, program, search.out / "trials" / f"{number:04d}", trainer)
        known = [x for x in row["scores"] if x is not None]
        if known:
            study.tell(trial, sum(known) / len(known))
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        rows.append(row | {"point": number})
        told(number, rows[-1])
    return rows


def _sampler(name: str, seed: int) -> Any:
    import optuna

    registry.choose("sampler", name, SAMPLERS)
    if name == "cmaes" and find_spec("cmaes") is None:
        raise InputError("--sampler cmaes needs a package that is not installed: pip install cmaes")
    return getattr(optuna.samplers, SAMPLERS[name])(seed=seed)


def proposed(trial: Any, space: Space) -> dict[str, Any]:
    """The fields of the point that the trial proposes: one value of each list, one number of each range."""
    known, point = known_fields(space.base["algorithm"]), {}
    for name, source in {**space.grid, **space.random}.items():
        chosen = _suggested(trial, name, source, name in known and type(known[name].default) is int)
        point |= chosen if isinstance(chosen, Mapping) else {name: chosen}
    return point


def _suggested(trial: Any, name: str, source: Range | Sequence[Any], whole: bool) -> Any:
    if not isinstance(source, Range):
        # Lists and mappings are no categories of Optuna: their texts are.
        labels = {str(x) if isinstance(x, Mapping) else text(x): x for x in source}
        return labels[trial.suggest_categorical(name, list(labels))]
    if whole:
        return trial.suggest_int(name, round(source.low), round(source.high), log=source.log)
    return trial.suggest_float(name, source.low, source.high, log=source.log)
