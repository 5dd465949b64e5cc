"""Where an iteration's time goes."""

import json
from typing import Any

from rich.console import Console

from benchback.cli.show_tables import table
from benchback.tools.profile.page import milliseconds, ratio_text, share


def print_profile(found: dict[str, Any], as_json: bool) -> None:
    """The table of the parts, the comparison of updates if there is one, and where the files are."""
    if as_json:
        print(json.dumps(found))
        return
    run, times = found["run"], found["whole"]
    title = f"{run['algorithm']} {run['backend']}/{run['mode']}/{run['unit']} on {run['env']}, an iteration"
    rows = [(row["part"], milliseconds(row["seconds"]), share(row["share"]), row["how"]) for row in found["parts"]]
    Console().print(table(title, ("part", "ms", "share", "what was timed"), rows))
    print("parts measured apart need not add up to the whole: the remainder is what they leave over or exceed it by")
    print(
        f"waited for: rollout {milliseconds(times['rollout_s'])} ms, update {milliseconds(times['update_s'])} ms; ",
        end="",
    )
    print(f"the calls of an iteration return after {milliseconds(times['returned_s'])} ms")
    if "updates" in found:
        print_updates(found["updates"])
    for name, what in (("page", "open"), ("cprofile", "snakeviz"), ("trace", "ui.perfetto.dev")):
        print(f"{what}: {found['files'][name]}")


def print_updates(found: dict[str, Any]) -> None:
    """Updates of two backends by what the clock was stopped at."""
    first, second = found["between"]
    rows = [(row["what"], *map(milliseconds, row["seconds"]), ratio_text(row)) for row in found["rows"]]
    Console().print(table("updates alone", ("the clock runs", f"{first} ms", f"{second} ms", "ratio"), rows))
