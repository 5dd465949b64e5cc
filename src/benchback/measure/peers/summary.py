"""From a store to one row for each run, and to one line for each side of a workload."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchback.measure.peers.sides import SIDES, Side
from benchback.measure.record import Attempt, Cell
from benchback.measure.results import latest
from benchback.measure.store import Store
from benchback.stats import geometric_mean, paired_ratio


def rows(store: Store) -> list[dict[str, Any]]:
    """One row per run, in schedule order: its metrics, or why it has none."""
    cells = store.cells()
    return [_row(cells[slot.cell], slot.block, attempt) for slot, attempt in latest(store)]


def _row(cell: Cell, block: int, attempt: Attempt) -> dict[str, Any]:
    place = {"workload": cell.run["workload"], "side": cell.run["variant"], "block": block}
    if attempt.record is None:
        return place | {"error": attempt.detail}
    metrics = {name: values[0] for name, values in attempt.record.samples.items()}
    done = {"error": "", "config": attempt.record.ledger["config"]}
    return {**place, **done, **metrics, **attempt.record.memory}


def summarise(rows: Sequence[dict[str, Any]], sides: dict[str, Side] = SIDES) -> list[dict[str, Any]]:
    """Speed, compile time, memory and return of each side, and the ratio of each own side to it.

    `ratios` maps own sides to {ratio, low, high, blocks}: how many times as fast as this row's side.
    """
    places = dict.fromkeys((row["workload"], row["side"]) for row in rows)
    return [_line(rows, workload, side, sides) for workload, side in sorted(places, key=_reading_order(sides))]


def _reading_order(sides: dict[str, Side]) -> Callable[[tuple[str, str]], tuple[str, int]]:
    return lambda place: (place[0], list(sides).index(place[1]))


def _line(rows: Sequence[dict[str, Any]], workload: str, side: str, sides: dict[str, Side]) -> dict[str, Any]:
    good = _by_block(rows, workload, side)
    errors = [r["error"] for r in rows if (r["workload"], r["side"]) == (workload, side) and r["error"]]
    returns = [row["episode_return"] for row in good.values() if row["episode_return"] is not None]
    others = [name for name, other in sides.items() if other.own and name != side]
    return {
        "workload": workload,
        "side": side,
        "own": sides[side].own,
        "blocks": len(good),
        "steps_per_s": geometric_mean([_speed(row) for row in good.values()]) if good else None,
        "ratios": {name: found for name in others if (found := _ratio(_by_block(rows, workload, name), good))},
        **_limits([*good.values()]),
        "compile_s": _middle([row["compile_s"] for row in good.values()]),
        "peak_rss_bytes": _middle([row["peak_rss_bytes"] for row in good.values()]),
        "episode_return": statistics.fmean(returns) if returns else None,
        "error": errors[0] if errors else "",
        "differs": sides[side].differs,
        "note": sides[side].note,
        "options": sides[side].options,
        "pins": _pins(sides[side]),
        "config": next((row["config"] for row in good.values()), None),
    }


LIMITS = ("flops_per_s", "products", "bandwidth", "env", "limit")
"""Of a line: FLOPs a second in products, then shares of its time, see `shares`."""


def _limits(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    found = [shares(row) for row in rows]
    return {name: _middle([x[name] for x in found if name in x]) for name in LIMITS}


def shares(row: dict[str, Any]) -> dict[str, float]:
    """What the machine alone would take of the time of a run: 1 is a program that does nothing else.

    `products`: all products of matrices of an iteration, each shape at NumPy's rate. `bandwidth`: its bytes at the
    rate of a copy, had no cache kept them. `env`: environment steps alone. `limit`: products and environment, which
    on one thread come one after the other. Rows of earlier versions have none of them.
    """
    config, found = row["config"], {}
    agents = config.get("agents", 1)
    iterations = row["env_steps"] / (agents * config["num_envs"] * config["num_steps"])
    iteration_s = row["steady_s"] / iterations
    if "product_s" in row:
        found |= {
            "flops_per_s": row["iteration_flops"] / iteration_s,
            "products": row["product_s"] / iteration_s,
            "bandwidth": row["iteration_bytes"] / row["copy_bytes_per_s"] / iteration_s,
        }
    if "env_step_s" in row:
        found["env"] = config["num_steps"] * row["env_step_s"] / iteration_s
    if "products" in found and "env" in found:
        found["limit"] = found["products"] + found["env"]
    return found


def _pins(side: Side) -> list[str]:
    """Requirements of the side's own virtual environment; none where it runs in benchback's."""
    return [package for packages in side.environment.steps for package in packages] if side.environment else []


def _by_block(rows: Sequence[dict[str, Any]], workload: str, side: str) -> dict[int, dict[str, Any]]:
    mine = (row for row in rows if (row["workload"], row["side"]) == (workload, side))
    return {row["block"]: row for row in mine if not row["error"]}


def _ratio(numerator: dict[int, Any], denominator: dict[int, Any]) -> dict[str, Any] | None:
    common = sorted(numerator.keys() & denominator.keys())
    if not common:
        return None
    found = paired_ratio([_speed(numerator[b]) for b in common], [_speed(denominator[b]) for b in common])
    # JSON has no NaN.
    return {name: None if math.isnan(x) else x for name, x in asdict(found).items()}


def _speed(row: dict[str, Any]) -> float:
    return row["env_steps"] / row["steady_s"]


def _middle(values: Sequence[float | int]) -> float | None:
    return float(statistics.median(values)) if values else None
