"""Search space: fields that all points share, a grid, and ranges from which points are drawn.

Spaces that come with the package are YAML files in `spaces/`; a user's own has the same fields, or is given by flags.
"""

from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchback import registry
from benchback.errors import InputError, hint
from benchback.measure.study_checks import NAME
from benchback.population.ranges import Range, parse_range
from benchback.population.spec import PLACES, parse_axis
from benchback.training.run import Run, whole_number
from benchback.training.run_dir import read_config

FOLDER = Path(__file__).parent / "spaces"
DECADE = 10.0
"""A range whose ends are this factor apart is drawn from on a logarithmic scale unless it says otherwise."""
TRIES = 100
"""Most draws per wanted point, since some may be equal."""


@dataclass(frozen=True)
class Space:
    """Every combination of the grid's values, each with every draw."""

    name: str
    base: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the run that all points share."""
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Field -> its values. Where a value is a mapping, it sets several fields and the name is free."""
    random: Mapping[str, Range | Sequence[Any]] = field(default_factory=dict)
    """Field -> where to draw it from."""
    points: int = 10
    """Draws; without ranges there are none."""
    sampling: str = "random"
    """How draws are placed: random, or sobol for an even cover."""
    seeds: int = 3
    """Runs of every point, each with a seed of its own; all points have the same ones."""
    description: str = ""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"name={self.name[:80]!r} must be 1 to 64 of the characters a-z, 0-9, _ and -")
        for name in ("points", "seeds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")
        registry.choose("sampling", self.sampling, PLACES)
        if twice := set(self.grid) & set(self.random):
            raise InputError(f"{min(twice)} is in the grid and drawn at random; keep one")


def points(space: Space, seed: int) -> list[dict[str, Any]]:
    """The fields that each point sets, in order: the grid like nested loops, the draws within."""
    if not space.grid and not space.random:
        raise InputError("nothing to tune; give --grid FIELD=VALUE,VALUE or --random FIELD=LOW..HIGH")
    combinations = [_merged(space.grid, choice) for choice in product(*space.grid.values())]
    return [one | draw for one in combinations for draw in _draws(space, seed)]


def _merged(grid: Mapping[str, Any], choice: Sequence[Any]) -> dict[str, Any]:
    point: dict[str, Any] = {}
    for name, value in zip(grid, choice, strict=True):
        point |= value if isinstance(value, Mapping) else {name: value}
    return point


def _draws(space: Space, seed: int) -> list[dict[str, Any]]:
    """As many different draws as the space has points; a longer list begins with the shorter one."""
    if not space.random:
        return [{}]
    known, found = known_fields(space.base["algorithm"]), []
    shares = PLACES[space.sampling](len(space.random), TRIES * space.points, np.random.default_rng([seed, 2]))
    for row in shares.tolist():
        axes = zip(space.random.items(), row, strict=True)
        drawn = {name: _drawn(known[name], source, share) for (name, source), share in axes}
        if drawn not in found:
            found.append(drawn)
        if len(found) == space.points:
            return found
    raise InputError(f"points={space.points}: only {len(found)} different ones can be drawn; choose --points fewer")


def _drawn(field: Field, source: Range | Sequence[Any], share: float) -> Any:
    """The value that lies this share of the way through the source."""
    if not isinstance(source, Range):
        return source[int(share * len(source))]
    return round(source.at(share)) if type(field.default) is int else source.at(share)


def known_fields(algorithm: str) -> dict[str, Field]:
    """The fields of a run that a space may set."""
    return {f.name: f for cls in (Run, registry.config(algorithm)) for f in fields(cls) if f.name not in UNTUNED}


UNTUNED = ("config", "seed")


def names() -> list[str]:
    """The spaces that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str) -> Space:
    """The space of that name, or the one in that YAML file."""
    path = FOLDER / f"{name}.yaml" if name in names() else Path(name)
    if path.suffix not in (".yaml", ".yml"):
        known = [*registry.ALGORITHMS, *names()]
        raise InputError(f"space={name[:100]} is unknown; {hint(name, known)}; or give a YAML file")
    try:
        return from_dict({"name": path.stem.lower()} | read_config(path))
    except InputError as error:
        raise InputError(f"space {path}: {str(error).removeprefix(f'--config {path}: ')}") from None


def from_dict(given: Mapping[str, Any]) -> Space:
    """The space whose fields are given as in a YAML file; unknown names are refused with the nearest known one."""
    known = {f.name: f for f in fields(Space)}
    for name, value in given.items():
        if name not in known:
            raise InputError(f"{name[:60]} is not a field of a space; {hint(name, known)}")
        kind = dict if name in ("base", "grid", "random") else type(known[name].default) if name != "name" else str
        if type(value) is not kind:
            raise InputError(f"{name}={value!r:.80} must be of type {kind.__name__}")
    space = Space(**{name: x for name, x in given.items() if name not in ("grid", "random")})
    named = str(space.base.get("algorithm", registry.DEFAULT_ALGORITHM))
    algorithm = registry.choose("algorithm", named, registry.ALGORITHMS)
    shared = {name: x for name, x in space.base.items() if name != "algorithm"}
    space = replace(space, base={"algorithm": algorithm} | _checked(known_fields(algorithm), shared))
    return extended(space, given.get("grid", {}), given.get("random", {}))


def extended(space: Space, grid: Mapping[str, Any], random: Mapping[str, Any]) -> Space:
    """The space with these axes, checked against its algorithm's fields, replacing its own axes of the same name."""
    known = known_fields(space.base["algorithm"])
    checked_grid = {name: _values(known, name, given) for name, given in grid.items()}
    checked_random = {name: _source(known, name, given) for name, given in random.items()}
    kept = {name: x for name, x in space.grid.items() if name not in random}
    left = {name: x for name, x in space.random.items() if name not in grid}
    return replace(space, grid=kept | checked_grid, random=left | checked_random)


def varied(space: Space, given: Mapping[str, str]) -> Space:
    """The space with axes as `train --vary` writes them: lists and counted ranges are grids, other ranges drawn."""
    known = known_fields(space.base["algorithm"])
    grid, random = {}, {}
    for name, text in given.items():
        field = _named(known, name)
        if ".." not in text:
            grid[name] = _values(known, name, text)
            continue
        if type(field.default) not in (int, float):
            raise InputError(f"--vary {name} has no range, its values are not numbers; list them: {name}=VALUE,VALUE")
        axis = parse_axis(name, text)
        if axis.count is None:
            random[name] = axis.source
        else:
            places = np.linspace(0.0, 1.0, axis.count).tolist()
            grid[name] = list(dict.fromkeys(_drawn(field, axis.source, share) for share in places))
    kept = {name: x for name, x in space.grid.items() if name not in random}
    left = {name: x for name, x in space.random.items() if name not in grid}
    return replace(space, grid=kept | grid, random=left | random)


def _values(known: Mapping[str, Field], name: str, given: Any) -> list[Any]:
    given = given.split(",") if isinstance(given, str) else given
    if not isinstance(given, list):
        raise InputError(f"grid: {name}={given!r:.80} must be a list of values")
    if not given or given == [""]:
        raise InputError(f"grid: {name} has no values; give at least one, e.g. {name}=1,2")
    return [_checked(known, x) if isinstance(x, Mapping) else _parsed(_named(known, name), x) for x in given]


def _checked(known: Mapping[str, Field], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _parsed(_named(known, name), x) for name, x in values.items()}


def _named(known: Mapping[str, Field], name: str) -> Field:
    if name == "seed":
        raise InputError("seed is not tuned: every point has the same seeds, as many as --seeds says")
    if name not in known:
        raise InputError(f"{str(name)[:60]} is not a field of the run; {hint(name, known)}")
    return known[name]


def _source(known: Mapping[str, Field], name: str, given: Any) -> Range | list[Any]:
    """`1e-5..1e-2` or the values to choose from."""
    field = _named(known, name)
    if not isinstance(given, str) or ".." not in given:
        return _values(known, name, given)
    if type(field.default) not in (int, float):
        raise InputError(f"random: {name} has no range, its values are not numbers; list them: {name}=VALUE,VALUE")
    return parse_range(f"random: {name}", given, log_from=DECADE)


def _parsed(field: Field, value: Any) -> Any:
    """A value given as text, converted to the field's type; others are checked when the run is made."""
    if not isinstance(value, str) or isinstance(field.default, str):
        return value
    kind = type(field.default)
    text = value.strip()
    try:
        if kind is tuple:
            return [whole_number(width) for width in text.split("x")]
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return whole_number(text) if kind is int else kind(text)
    except (KeyError, ValueError):
        example = "64x64" if kind is tuple else "true" if kind is bool else field.default
        raise InputError(f"{field.name}={text[:60]} must be of type {kind.__name__}, e.g. {example}") from None
