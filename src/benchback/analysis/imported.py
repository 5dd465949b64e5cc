"""The results cache of benchback-rl as a read-only source: its tables recomputed by its own formulas.

A row is a run. Speed-ups divide every run of the one framework by every run of the other in the same environment and
model size, and take the geometric mean and the median of all ratios. Nothing is written to the file.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from benchback import stats
from benchback.errors import InputError

NEEDED = ("config.framework", "config.compile", "config.env_name", "config.hidden_sizes", "summary.duration_total")
METRICS = {
    "total": "summary.duration_total",
    "iteration 0": "summary.duration_iteration_0",
    "iterations 1:7": "summary.duration_iteration_avg_1:7",
    "steady iteration": "summary.duration_iteration_avg_7:",
    "rollout": "summary.duration_rollout_avg_7:",
    "update": "summary.duration_update_avg_7:",
}
COMPILED = {"torch": "torch.compile", "linen": "jax.jit", "nnx": "nnx.cached_partial"}
"""The modes that the published tables compare."""
MODELS = {(64, 64): "small", (256,) * 3: "medium", (1024,) * 6: "large"}
WARM_UP = "warmup"
ORDER = ("linen", "nnx", "torch")
BACKEND = {"torch": "pytorch", "linen": "linen", "nnx": "nnx"}


def read_cache(path: Path) -> pl.DataFrame:
    """A row per run under our names; warm-up runs are left out as in the published charts."""
    advice = "give the parquet file of benchback-rl's results cache"
    if not path.is_file():
        raise InputError(f"{path} is {'no file' if path.exists() else 'not there'}; {advice}")
    try:
        table = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0][:100]
        raise InputError(f"{path} cannot be read as parquet ({reason}); {advice}") from None
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise InputError(f"{path} has no column {missing[0]}; it is not a results cache of benchback-rl")
    optional = {"config.notes_config": "", "config.notes_user": "", "config.sync_for_timing": False}
    for name, value in optional.items():
        if name not in table.columns:
            table = table.with_columns(pl.lit(value).alias(name))
    rows = [_run(row) for row in table.iter_rows(named=True)]
    kept = [row for row in rows if row["label"] != WARM_UP]
    if not kept:
        raise InputError(f"{path} holds no run but warm-up")
    return pl.DataFrame(kept, infer_schema_length=None)


def _run(row: dict[str, Any]) -> dict[str, Any]:
    hidden = tuple(row["config.hidden_sizes"] or ())
    found = {
        "framework": str(row["config.framework"]),
        "compile": str(row["config.compile"]),
        "env": str(row["config.env_name"]),
        "model": MODELS.get(hidden, "x".join(map(str, hidden))),
        "timing": "sync" if row["config.sync_for_timing"] else "async",
        "machine": str(row["config.notes_user"] or ""),
        "label": str(row["config.notes_config"] or ""),
    }
    return found | {name: row.get(column) for name, column in METRICS.items()}


def compiled(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs that the published tables compare: every framework in its best mode."""
    best = ((pl.col("framework") == name) & (pl.col("compile") == mode) for name, mode in COMPILED.items())
    return runs.filter(pl.any_horizontal(best))


def speedups(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """`nnx → linen` and so on by model, for every metric, timing and machine: the published tables and more."""
    rows = []
    for (machine, timing), part in compiled(runs).group_by("machine", "timing", maintain_order=True):
        for metric in METRICS:
            for model in _models(part):
                rows += _pairs(part.filter(pl.col("model") == model), metric, model, str(machine), str(timing))
    return rows


def _models(part: pl.DataFrame) -> list[str]:
    known = part["model"].unique(maintain_order=True).to_list()
    return sorted(known, key=lambda name: list(MODELS.values()).index(name) if name in MODELS.values() else 99)


def _pairs(part: pl.DataFrame, metric: str, model: str, machine: str, timing: str) -> Iterator[dict[str, Any]]:
    present = [name for name in ORDER if name in part["framework"].unique().to_list()]
    for slower_to, faster_to in ((b, a) for a, b in combinations(present, 2)):
        cells = [(_values(part, slower_to, env, metric), _values(part, faster_to, env, metric)) for env in _envs(part)]
        found = stats.all_pairs(cells)
        if found.pairs:
            row = {"machine": machine, "timing": timing, "figure": metric, "pair": f"{slower_to} → {faster_to}"}
            row |= {"model": model, "geometric_mean": found.geometric_mean, "median": found.median}
            yield row | {"pairs": found.pairs}


def _envs(part: pl.DataFrame) -> Sequence[str]:
    return part["env"].unique(maintain_order=True).to_list()


def _values(part: pl.DataFrame, framework: str, env: str, metric: str) -> list[float]:
    """Known durations of a framework in an environment."""
    chosen = part.filter((pl.col("framework") == framework) & (pl.col("env") == env))
    return [float(x) for x in chosen[metric].drop_nulls().to_list() if x > 0]


def machines(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """How many times as long one machine takes as the first, by framework and model, over all pairs of runs."""
    runs = compiled(runs)
    names = runs["machine"].unique(maintain_order=True).to_list()
    rows = []
    for other in names[1:]:
        for framework in ORDER:
            part = runs.filter((pl.col("framework") == framework) & (pl.col("timing") == "async"))
            for model in _models(part):
                both = [
                    part.filter((pl.col("machine") == name) & (pl.col("model") == model)) for name in (other, names[0])
                ]
                cells = [[_values(side, framework, env, "total") for side in both] for env in _envs(both[1])]
                found = stats.all_pairs((cell[0], cell[1]) for cell in cells)
                if found.pairs:
                    row = {"machine": other, "against": names[0], "framework": framework, "model": model}
                    row |= {"geometric_mean": found.geometric_mean, "median": found.median, "pairs": found.pairs}
                    rows.append(row)
    return rows


def modes(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Median seconds of rollout and update of every framework and way to compile, sync timing."""
    rows = []
    sync = runs.filter(pl.col("timing") == "sync")
    for (machine, framework, compile), part in sync.group_by("machine", "framework", "compile", maintain_order=True):
        row: dict[str, Any] = {"machine": machine, "framework": framework, "compile": compile, "runs": len(part)}
        rows.append(row | {f"{name}_s": part[name].cast(pl.Float64).median() for name in ("rollout", "update")})
    return rows


def charts_data(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs with the columns of our own chart of total durations."""
    models = _models(runs)
    envs = sorted(_envs(runs), key=lambda env: _mean_total(runs, env))
    rows = []
    for row in compiled(runs).iter_rows(named=True):
        place = models.index(row["model"]) + 0.12 + 0.76 * envs.index(row["env"]) / max(len(envs) - 1, 1)
        shown = {
            "variant": f"{row['framework']} {row['compile']}",
            "backend": BACKEND[row["framework"]],
            "place": place,
        }
        shown |= {name: row[name] for name in ("env", "model", "timing", "machine")}
        rows.append(shown | {"block": 0, "total_s": row["total"], "steady_s": row["steady iteration"]})
    return pl.DataFrame(rows, infer_schema_length=None)


def _mean_total(runs: pl.DataFrame, env: str) -> float:
    value = runs.filter(pl.col("env") == env)["total"].cast(pl.Float64).mean()
    return float(value) if isinstance(value, int | float) else 0.0
