"""The real thing, broken off for real: `benchback run smoke` killed again and again ends as an unbroken one."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchback.measure.store import open_store

COMMAND = [sys.executable, "-m", "benchback.cli", "run", "smoke", "--scale", "0.25", "--json", "--store"]
"""A quarter of the iterations: what is examined is that nothing is lost, twice or different, not how fast it is."""


def table(output: str) -> list[dict[str, Any]]:
    """The rows of the verdict table, without what a clock says."""
    (outcome,) = (json.loads(line) for line in output.splitlines() if '"event": "outcome"' in line)
    timed = {"steps_per_s", "compile_s", "cold_start_s"}
    return [{name: x for name, x in row.items() if name not in timed} for row in outcome["rows"]]


def learned(path: Path) -> dict[str, list[Any]]:
    """Every run -> what it learned; two runs of one slot would be two."""
    with open_store(path) as store:
        return {
            f"{attempt.slot}, try {attempt.number}": attempt.record.samples["episode_return"]
            for attempt in store.attempts()
            if attempt.record
        }


@pytest.mark.slow
def test_smoke_killed_at_random_ends_with_the_table_of_an_unbroken_one(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken.sqlite", tmp_path / "broken.sqlite"
    whole = subprocess.run([*COMMAND, str(unbroken)], check=True, capture_output=True, text=True).stdout
    moments = random.Random(0)
    for _ in range(6):
        process = subprocess.Popen([*COMMAND, str(broken)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=moments.uniform(5, 40))
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
    pieced = subprocess.run([*COMMAND, str(broken)], check=True, capture_output=True, text=True).stdout
    assert table(pieced) == table(whole)
    assert learned(broken) == learned(unbroken)
    assert len(learned(broken)) == 12
