"""How costly environments are, as `benchback envs time --json` timed them."""

import json
from pathlib import Path

from benchback.errors import InputError


def read_env_times(path: Path) -> dict[str, float]:
    """Environment without its suite -> seconds of a step at the largest number of environments."""
    advice = f"write it by benchback envs time --json > {path}"
    try:
        rows = json.loads(path.read_text())
        sized = [(str(row["env"]).rpartition("/")[2], int(row["num_envs"]), float(row["step_s"])) for row in rows]
    except FileNotFoundError:
        raise InputError(f"{path} is not there; {advice}") from None
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"{path} does not hold times of environments; {advice}") from None
    largest = max((size for _, size, _ in sized), default=0)
    found = {env: seconds for env, size, seconds in sized if size == largest and seconds > 0}
    if not found:
        raise InputError(f"{path} holds no time of an environment; {advice}")
    return found
