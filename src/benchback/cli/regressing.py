"""`benchback regress`: whether the working tree is slower than a commit."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from benchback.cli.advising import watching
from benchback.cli.arguments import on_stop, parse
from benchback.cli.tables import jsonable, table

if TYPE_CHECKING:
    from benchback.measure.process import Ended
    from benchback.measure.record import Cell
    from benchback.tools.regress import Found

ROUNDS_S = 5.0
"""Seconds of the rounds of one relay."""
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class RegressFlags:
    """Compare the speed of the working tree with that of a commit: PPO on CartPole, both trees taking turns."""

    against: str = ""
    """Commit to compare with; by default the last one, or the one before it if nothing has changed since."""
    backends: tuple[str, ...] = ()
    """Backends to compare; all by default."""
    budget: str = "6m"
    """Time for measuring, e.g. 90s, 6m or 1h."""
    json: bool = False
    """Print JSON."""


def regress(arguments: list[str]) -> int:
    from benchback.measure.budget import seconds_of
    from benchback.measure.relay import Pace, Relay, relay_launch
    from benchback.measure.trees import trees, worker_command
    from benchback.tools.regress import Hooks, Search, cells_of

    flags = parse(RegressFlags, arguments, "regress")
    cells, budget_s, stop = cells_of(flags.backends), seconds_of(flags.budget), on_stop()
    with trees(flags.against) as both, relay_launch(keep_caches=True) as launch, watching() as progress:

        def run_pair(order: "Sequence[Cell]", seed: int) -> "dict[str, Ended]":
            commands = {cell.id: worker_command(both.before if cell.twin else both.now) for cell in order}
            pace = Pace(relay_s=ROUNDS_S)
            return launch(Relay(order, seed, TIMEOUT_S, pace, lambda: not stop(), commands=commands, copies_load=True))

        found = Search(cells, budget_s, Hooks(run_pair, stop, progress=progress)).run()
    print_found(found, both.commit, flags.json)
    return exit_code(found, interrupted=stop())


def exit_code(found: "Sequence[Found]", *, interrupted: bool) -> int:
    """1 if something is slower, 3 if something could not be measured."""
    if any(x.slower for x in found):
        return 1
    return 130 if interrupted else 3 if any(x.failed for x in found) else 0


def print_found(found: "Sequence[Found]", commit: str, as_json: bool) -> None:
    """Print a row for each program, and one sentence."""
    if as_json:
        print(json.dumps(jsonable({"against": commit, "programs": [record_of(x) for x in found]}), indent=2))
        return
    rows = [(x.cell.variant, ratio(x), str(len(x.ratios)), verdict(x)) for x in found]
    title = escape(f"An iteration now, against {commit}")
    Console().print(table(title, ("program", "ratio", "relays", "verdict"), [tuple(map(escape, row)) for row in rows]))
    print(sentence(found))


def record_of(found: "Found") -> dict[str, Any]:
    """JSON-able."""
    low, high = found.interval
    return {
        "program": found.cell.variant,
        "ratios": list(found.ratios),
        "low": low,
        "high": high,
        "p": found.p,
        "verdict": verdict(found),
    }


def ratio(found: "Found") -> str:
    """`1.02x [1.01, 1.03]`, or a dash."""
    from benchback.analysis.wording import ratio_text
    from benchback.stats import geometric_mean

    return ratio_text(geometric_mean(found.ratios), *found.interval) if len(found.ratios) > 1 else "-"


def verdict(found: "Found") -> str:
    """What is shown of one program."""
    from benchback.tools.regress import LIMIT

    if found.failed:
        return found.failed
    if found.slower:
        return "slower"
    if found.sound:
        return f"not slower by {LIMIT:.0%}"
    return "open: more relays are needed"


def sentence(found: "Sequence[Found]") -> str:
    """The answer."""
    slower = [x.cell.variant for x in found if x.slower]
    if slower:
        return f"Slower than it was: {', '.join(slower)}."
    if all(x.sound for x in found):
        return "Nothing got slower."
    return "Nothing is shown to be slower, but not everything is decided: give it more time, e.g. --budget 15m."
