"""Bugs in the layers above the maths stay caught: see `seeded_bugs.py`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from seeded_bugs import BUGS, ROOT, made

SCRIPT = Path(__file__).with_name("seeded_bugs.py")


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_still_fits_the_code_and_has_its_test(name: str) -> None:
    bug = BUGS[name]
    assert made(bug, ROOT / "src" / "benchback") != (ROOT / "src" / "benchback" / bug.file).read_text()
    file, _, test = bug.test.partition("::")
    assert re.search(rf"^def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_every_seeded_bug_is_noticed() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
