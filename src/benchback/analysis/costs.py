"""How costly environments are, as `benchback envs time` timed them: kept in the store, or printed to a file."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchback.errors import InputError
from benchback.measure.store import Event


def stored_env_times(events: Iterable[Event]) -> dict[str, float]:
    """The times that were last kept with a campaign; none where none were."""
    kept = [event.detail["rows"] for event in events if event.kind == "complexity"]
    return by_env(kept[-1]) if kept else {}


def read_env_times(path: Path) -> dict[str, float]:
    """The times in a file; an InputError that names the remedy if it holds none."""
    advice = f"write it by benchback envs time --json > {path}"
    try:
        found = by_env(json.loads(path.read_text()))
    except FileNotFoundError:
        raise InputError(f"{path} is not there; {advice}") from None
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"{path} does not hold times of environments; {advice}") from None
    if not found:
        raise InputError(f"{path} holds no time of an environment; {advice}")
    return found


def by_env(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Environment without its suite -> seconds of a step at the largest number of environments."""
    sized = [(str(row["env"]).rpartition("/")[2], int(row["num_envs"]), float(row["step_s"])) for row in rows]
    largest = max((size for _, size, _ in sized), default=0)
    return {env: seconds for env, size, seconds in sized if size == largest and seconds > 0}
