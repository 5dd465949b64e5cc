"""Diagnostics of a campaign: parity, ledgers, noise, canaries, failures, code size and provenance."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from benchback.analysis.code_size import code_size_rows
from benchback.analysis.proofs import parity_verdict
from benchback.analysis.source import Source
from benchback.analysis.table import by_cell, frame, keys
from benchback.analysis.wording import disagreement_text, extra_work_text
from benchback.measure.flops import extra_work
from benchback.measure.record import canonical
from benchback.measure.verify import disagreements

LEDGER = ("parameters", "optimiser_steps", "env_steps_per_call", "iterations_per_call", "host_syncs_per_call")
LEDGER_MORE = ("transfers_per_call", "bridged", "compiles", "dtype", "matmul_precision", "threads")
LEDGER_WORK = ("forward_flops", "gradient_flops", "final_value_rows")
LEDGER_AGENTS = ("members", "group")
LEDGER_HOST = ("env_transfers_per_call", "env_bytes_per_call", "env_share")


def parity_table(source: Source) -> pl.DataFrame:
    """The verdict of every program of the campaign, measured before its first run."""
    verdicts = {cell.proof: (cell, parity_verdict(cell, source.parity)) for cell in source.cells.values()}
    events = [event for event in source.events if event.kind == "parity"]
    levels = ", ".join(events[-1].detail.get("levels", ())) if events else ""
    code = str(events[-1].detail.get("code", "")) if events else ""
    return frame(
        [
            {"program": proof, "backend": cell.run["backend"], "verdict": verdict, "code": code}
            | {"levels": f"{levels}, L4 of members" if levels and cell.members > 1 else levels}
            for proof, (cell, verdict) in verdicts.items()
        ]
    )


def ledger_table(source: Source) -> pl.DataFrame:
    """What the runs of every cell did, and in what they disagree with the others of their block beyond their axes."""
    against, fields = _disagreements(source), ledger_fields(source)
    rows, ledgers = [], _ledgers_by_group(source)
    for cell, runs in by_cell(source):
        ledger: Mapping[str, Any] = runs[0].sampled.ledger if runs[0].sampled else {}
        row = keys(cell) | {name: _shown(ledger.get(name)) for name in fields}
        row |= {"extra_work": extra_work_text(extra_work(ledger, ledgers[cell.group]))}
        rows.append(row | {"differs": "; ".join(against.get(cell.id, ())) or "nothing"})
    return frame(rows)


def ledger_fields(source: Source) -> tuple[str, ...]:
    """Fields of a ledger to show; those of several agents, and of environments in Python, only where there are any."""
    hosts = any(run.sampled and run.sampled.ledger.get("host_env") for run in source.runs)
    several = any(cell.members > 1 for cell in source.cells.values())
    more = (*(LEDGER_AGENTS if several else ()), *(LEDGER_HOST if hosts else ()))
    return (*LEDGER, *LEDGER_MORE, *LEDGER_WORK, *more)


def _ledgers_by_group(source: Source) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in source.runs:
        found.setdefault(run.cell.group, []).extend([run.sampled.ledger] if run.sampled else [])
    return found


def _shown(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else canonical(value)


def _disagreements(source: Source) -> dict[str, list[str]]:
    """Cell -> fields of its ledger that differ from the first one of its block."""
    blocks: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = {}
    for run in source.runs:
        if run.sampled:
            blocks.setdefault((run.cell.group, run.slot.block), {})[run.cell.id] = run.sampled.ledger
    found: dict[str, list[str]] = {}
    for ledgers in blocks.values():
        for disagreement in disagreements(ledgers):
            text, said = disagreement_text(disagreement), found.setdefault(disagreement.second, [])
            if text not in said:
                said.append(text)
    return found


def noise_table(source: Source) -> pl.DataFrame:
    """What else the machine did during every attempt, in the order of the schedule."""
    rows = []
    for run in source.runs:
        if run.attempt is None:
            continue
        common = keys(run.cell) | {"run": run.slot.id, "order": run.slot.order}
        common |= {"tags": " ".join(run.attempt.tags) or "none", "tagged": bool(run.attempt.tags)}
        rows += [common | {"kind": name, "value": float(value)} for name, value in sorted(run.attempt.noise.items())]
    return frame(rows)


def canary_table(source: Source) -> pl.DataFrame:
    """A fixed piece of work around every block, relative to its median: the machine without any backend."""
    rows = []
    for kind, words in (("matmul_s", "arithmetic"), ("memcpy_s", "memory")):
        values = [float(x[kind]) for x in source.canaries if kind in x]
        middle = float(np.median(values)) if values else 1.0
        rows += [{"order": at, "kind": words, "seconds": x, "relative": x / middle} for at, x in enumerate(values)]
    return frame(rows)


def failures_table(source: Source) -> pl.DataFrame:
    """Every attempt that did not end well, or was tagged; and every slot that was not run."""
    cells = {run.slot.id: run.cell for run in source.runs}
    rows = []
    for attempt in source.attempts:
        if attempt.outcome != "ok" or attempt.tags:
            row = keys(cells[attempt.slot]) | {"run": attempt.slot, "attempt": attempt.number}
            row |= {"outcome": attempt.outcome if attempt.outcome != "ok" else "tagged", "tags": " ".join(attempt.tags)}
            rows.append(row | {"detail": attempt.detail, "log": attempt.log[-300:]})
    for run in source.runs:
        if run.attempt is None:
            row = keys(run.cell) | {"run": run.slot.id, "attempt": None, "outcome": "not run", "tags": ""}
            rows.append(row | {"detail": "the campaign has not come to it", "log": ""})
    return frame(rows)


def code_size_table(source: Source) -> pl.DataFrame:
    """Lines and concepts of every implementation, seconds until its first step is done, and compilations after it."""
    measured: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for cell, runs in by_cell(source):
        for run in runs:
            if run.sampled and cell.run["mode"] not in ("none", "eager") and cell.members == 1:
                marks, compiles = run.sampled.marks, run.sampled.compiles
                late = float(np.nansum(compiles[1:])) if len(compiles) else np.nan
                wait = marks["first_call"] - marks.get("imported", 0.0), marks.get("imported", np.nan), late
                measured.setdefault((cell.run["algorithm"], cell.run["backend"]), []).append(wait)
    rows, told = [], {cell.run["algorithm"] for cell in source.cells.values()}
    for row in (row for row in code_size_rows() if row["algorithm"] in told):
        found = np.array(measured.get((row["algorithm"], row["backend"]), [(np.nan,) * 3]))
        names = ("first_step_s", "import_s", "recompiles")
        row["implementation"] = row["backend"] if len(told) == 1 else f"{row['algorithm']} {row['backend']}"
        rows.append(row | {name: float(x) for name, x in zip(names, np.median(found, axis=0), strict=True)})
    return frame(rows)


def provenance_table(source: Source) -> pl.DataFrame:
    """Where it comes from: campaign, machine, versions, order of runs."""
    study = source.campaign.get("study", {})
    found: dict[str, Any] = {
        "study": study.get("name"),
        "description": study.get("description"),
        "note": source.campaign.get("note"),
        "comparable with the full study": source.campaign.get("comparable", True),
        "order of runs": study.get("order"),
        "seed of the schedule": source.campaign.get("seed"),
        "runs": len(source.runs),
        "runs with a result": sum(run.sampled is not None for run in source.runs),
        "machine states in the store": len(source.strata),
        "benchback": source.campaign.get("benchback"),
    }
    found |= {f"machine: {name}": value for name, value in sorted(source.strata[-1].items())} if source.strata else {}
    return frame([{"what": name, "value": _shown(x) or ""} for name, x in found.items() if x is not None])
