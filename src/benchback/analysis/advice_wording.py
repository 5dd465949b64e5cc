"""The words and numbers of an answer: one place, so that terminal, page and JSON say the same."""

import math
from typing import Any

from benchback import registry
from benchback.analysis.advice import Answer, NoSize, Ranked, SizeCrossing, Skipped, StepsCrossing
from benchback.analysis.prediction import Quantity, processes
from benchback.measure.candidates import RESIZE
from benchback.measure.record import Cell

COLUMNS = ("candidate", "start", "per million steps", "whole project", "memory", "verdict")
MOST_CROSSINGS = 3
"""Crossings in steps that are told: those next to the steps that were asked about."""


def name(cell: Cell) -> str:
    """`Flax Linen, jit`, `Flax Linen, jit, chunk 10` where calls cover several iterations, or with `, 10 agents`."""
    spec = registry.BACKENDS[cell.run["backend"]]
    chunk = f", chunk {cell.run['chunk']}" if cell.run["unit"] == "chunk" else ""
    agents = f", {cell.members} agents" if cell.members > 1 else ""
    return f"{spec.title}, {cell.run['mode']}{chunk}{agents}"


def full_name(cell: Cell) -> str:
    """The name, and `in one program` where it has several agents: for sentences, where there is room."""
    return name(cell) + (" in one program" if cell.members > 1 else "")


def seconds_text(seconds: float) -> str:
    """`0.42 s`, `42 s`, `12 min`, `3.4 h` or `12 days`, two or three digits."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 86_400)} days"


def _digits(value: float) -> str:
    if value >= 9.95 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def total_text(total: Quantity) -> str:
    """`5.8 h +-3%`: half of the 95 % interval, relative to the value."""
    share = 100 * (total.high - total.value) / total.value
    return f"{seconds_text(total.value)} +-{share:.0f}%" if share >= 0.5 else f"{seconds_text(total.value)} +-<1%"


def bytes_text(number: float) -> str:
    """`0.84 GB`."""
    return f"{number / 1e9:.2f} GB"


def count_text(number: int | float) -> str:
    """`12 thousand`, `3.4 million`, `1.2 billion`."""
    for size, word in ((1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if number >= size:
            return f"{number / size:.3g}{word}"
    return f"{number:.0f}"


def per_million(row: Ranked, answer: Answer) -> float:
    """Seconds of a million environment steps, of all agents of the program, in steady state."""
    return 1e6 * row.forecast.steady.value / (answer.question.config.batch_size * row.forecast.cell.members)


def verdict_text(row: Ranked, answer: Answer) -> str:
    """`shortest`, `tied` with it, or how many times as long the project takes."""
    if row is answer.best:
        return "shortest"
    if row in answer.tied:
        return "tied"
    return f"{row.ratio:.2f}x" if row.ratio < 10 else f"{row.ratio:.0f}x"


def table_rows(answer: Answer) -> list[tuple[str, ...]]:
    """The rows under COLUMNS, the shortest project first."""
    return [
        (
            name(row.forecast.cell),
            seconds_text(row.forecast.start_s),
            seconds_text(per_million(row, answer)),
            total_text(row.total),
            bytes_text(row.forecast.peak_bytes),
            verdict_text(row, answer),
        )
        for row in answer.ranked
    ]


def title(answer: Answer) -> str:
    """What was asked."""
    question = answer.question
    hidden = " ".join(map(str, question.config.hidden))
    network = "" if (kind := question.fields.get("network", "mlp")) == "mlp" else f"{kind}, "
    seeds = f"{question.seeds} seed{'s' if question.seeds > 1 else ''}"
    steps = count_text(question.steps)
    return f"{question.config.algorithm} on {question.env}, {network}hidden {hidden}: {seeds} of {steps} steps"


def sentence(answer: Answer) -> str:
    """What to do, in one sentence."""
    best, others = answer.best, answer.tied
    time = f"{seconds_text(best.total.value)} ({seconds_text(max(0.0, best.total.low))} to "
    time += f"{seconds_text(best.total.high)})"
    if others:
        names = ", ".join(full_name(row.forecast.cell) for row in others)
        return f"Use {full_name(best.forecast.cell)} or, as fast as can be told, {names}: about {time} in all."
    second = next(iter(answer.ranked[1:]), None)
    saves = "" if second is None else f"; {full_name(second.forecast.cell)} would take {second.ratio:.2f}x as long"
    return f"Use {full_name(best.forecast.cell)}: about {time} in all{saves}."


def remarks(answer: Answer) -> list[str]:
    """What the answer depends on, and what would change it."""
    return [
        *_circumstances(answer),
        *_steps_remarks(answer),
        size_text(answer.size),
        *_loaded_remarks(answer),
        *_left_out_remarks(answer),
        "Whether all compute the same is checked by `benchback parity`.",
    ]


def _circumstances(answer: Answer) -> list[str]:
    best, question, said = answer.best, answer.question, [*_agents_remarks(answer)]
    runs = processes(best.forecast.cell, question.seeds)
    if question.at_once > 1 and runs > 1:
        count = min(question.at_once, runs)
        memory = bytes_text(count * best.forecast.peak_bytes)
        said.append(
            f"Times are for one training after another; {count} at once take {seconds_text(best.at_once_s)} "
            f"at best, and {memory} of memory."
        )
    beside = min(answer.ranked, key=lambda row: row.at_once_s)
    if best.forecast.cell.members > 1 and beside.at_once_s < best.at_once_s:
        count = min(question.at_once, processes(beside.forecast.cell, question.seeds))
        rival = f"{full_name(beside.forecast.cell)} takes {seconds_text(beside.at_once_s)} at best"
        said.append(f"{rival} with {count} at once, one on each processor.")
    if answer.busy:
        said.append(f"The machine was busy ({'; '.join(answer.busy)}): the times hold while it is.")
    if answer.interrupted:
        said.append("It was interrupted; the answer is from what was measured until then.")
    if answer.tied:
        said.append("A longer --budget may tell tied candidates apart.")
    return said


def _agents_remarks(answer: Answer) -> list[str]:
    """How several agents are trained in one program, where such a candidate was measured."""
    many = next((row.forecast.cell for row in answer.ranked if row.forecast.cell.members > 1), None)
    if many is None:
        return []
    runs, seeds = processes(many, answer.question.seeds), answer.question.seeds
    times = "" if runs == 1 else f", {runs} times with another --seed: together {seeds} seeds"
    command = f"benchback train {many.run['algorithm']} --seeds {many.members} --unit iteration"
    return [f"{many.members} agents are trained in one program by `{command}`{times}."]


def _steps_remarks(answer: Answer) -> list[str]:
    """The certain crossings nearest to the steps asked about, on either side."""
    asked = answer.question.steps
    found = [x for x in answer.crossings if x.steps is not None and x.certain]
    nearest = sorted(found, key=lambda x: abs(math.log((x.steps or 1.0) / asked)))[:MOST_CROSSINGS]
    if not nearest:
        return ["Steps: as far as can be told, the choice is the same for any number of steps."]
    return [steps_text(x, answer.best.forecast.cell) for x in nearest]


def steps_text(crossing: StepsCrossing, first: Cell) -> str:
    """`Steps: below 1.2 million steps PyTorch, compile is faster than Flax Linen, jit.`"""
    if crossing.steps is None:
        return f"Steps: {name(crossing.other)} is never faster than {name(first)}."
    where = f"{crossing.other_ahead} about {count_text(crossing.steps)} steps"
    return f"Steps: {where} {name(crossing.other)} is faster than {name(first)}."


def size_text(size: SizeCrossing | NoSize) -> str:
    """At which width the choice between array frameworks changes, or why that is not known."""
    match size:
        case NoSize.ONE_FAMILY:
            return "Model size: all candidates are of one array framework; sizes were not compared."
        case NoSize.NOT_MEASURED:
            return "Model size: no time for a second size; use a longer --budget to see where the choice changes."
        case NoSize.NO_FIT:
            return f"Model size: a network {RESIZE} times as wide took no longer; the choice does not depend on it."
        case SizeCrossing(first, other, layers, widths, width, up_to, ahead):
            names = f"{name(other)} is faster than {name(first)}"
            basis = f"(from widths {widths[0]} and {widths[1]})"
            if width is None:
                never = f"{name(other)} is not faster than {name(first)}"
                return f"Model size: {never} up to a width of {up_to} {basis}."
            return f"Model size: with {layers} layers {ahead} a width of about {width} {names} {basis}."


def _loaded_remarks(answer: Answer) -> list[str]:
    """How much is saved by keeping compiled programs, and whether another candidate is first then."""
    known = [row for row in answer.ranked if row.loaded_s is not None]
    if not known or answer.question.seeds < 2 or answer.best.loaded_s is None:
        return []
    first = min(known, key=lambda row: row.loaded_s or math.inf)
    saved = answer.best.total.value - answer.best.loaded_s
    said = f"With a compile cache (train --compile-cache) it takes {seconds_text(max(0.0, saved))} less"
    return [f"{said}." if first is answer.best else f"{said}, and {name(first.forecast.cell)} is the shortest."]


def _left_out_remarks(answer: Answer) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for who, why in answer.left_out.items():
        reasons.setdefault(reason_text(why), []).append(who)
    return [f"Left out: {', '.join(who)}: {why}." for why, who in reasons.items()]


def reason_text(why: str | Skipped) -> str:
    """Why a candidate has no prediction."""
    match why:
        case Skipped.NO_TIME:
            return "no time left; use a longer --budget"
        case Skipped.LONG_ITERATIONS:
            return "an iteration is too long for chunks to matter"
        case text:
            return str(text).rstrip(".")


def record_of(answer: Answer) -> dict[str, Any]:
    """The answer as JSON has it: all numbers, and the words."""
    question = answer.question
    return {
        "question": {
            **question.fields,
            "env": question.env,
            "hidden": list(question.config.hidden),
            "steps": question.steps,
            "seeds": question.seeds,
            "iterations": question.iterations,
            "threads": question.threads,
            "device": question.device,
        },
        "sentence": sentence(answer),
        "remarks": remarks(answer),
        "candidates": [_candidate_record(row, answer) for row in answer.ranked],
        "crossings": [
            {"other": x.other.variant, "steps": x.steps, "other_ahead": x.other_ahead, "certain": x.certain}
            for x in answer.crossings
        ],
        "size": _size_record(answer.size),
        "left_out": {who: reason_text(why) for who, why in answer.left_out.items()},
        "relays": answer.relays,
        "spent_s": answer.spent_s,
        "busy": list(answer.busy),
        "interrupted": answer.interrupted,
    }


def _candidate_record(row: Ranked, answer: Answer) -> dict[str, Any]:
    forecast = row.forecast
    return {
        "name": name(forecast.cell),
        "variant": forecast.cell.variant,
        "agents": forecast.cell.members,
        "place": row.place,
        "verdict": verdict_text(row, answer),
        "start_s": forecast.start_s,
        "first_call_s": _interval(forecast.first_call),
        "warm_s": math.fsum(forecast.warm_s),
        "iteration_s": _interval(forecast.steady),
        "million_steps_s": per_million(row, answer),
        "total_s": _interval(row.total),
        "slower_s": _interval(row.slower),
        "ratio": row.ratio,
        "at_once_s": row.at_once_s,
        "with_compile_cache_s": row.loaded_s,
        "peak_bytes": forecast.peak_bytes,
        "relays": forecast.relays,
        "rounds": forecast.rounds,
    }


def _interval(found: Quantity) -> dict[str, float]:
    return {"value": found.value, "low": found.low, "high": found.high}


def _size_record(size: SizeCrossing | NoSize) -> dict[str, Any]:
    if isinstance(size, NoSize):
        return {"width": None, "reason": size.name.lower()}
    return {
        "width": size.width,
        "up_to": size.up_to,
        "other_ahead": size.ahead,
        "first": size.first.variant,
        "other": size.other.variant,
        "measured_widths": list(size.widths),
    }
