"""Eject: one standalone file from the sources of an algorithm, a backend and an environment.

The sources are linked (`link.py`), reduced to what the choice needs (`specialise.py`) and printed in the order in which
one reads them (`layout.py`). Nothing is a template: what changes in a source changes in the file.
"""

import subprocess
import sys
from importlib.metadata import version

from benchback import __version__, registry
from benchback.backends.torch_memory import ENVIRONMENT
from benchback.tools.eject import layout
from benchback.tools.eject.choice import PARTS, choose
from benchback.tools.eject.link import Linker, Program
from benchback.tools.eject.source import LINE_LENGTH
from benchback.tools.eject.specialise import specialise
from benchback.training.run import Run


def eject(run: Run, command: str, sources: dict[str, str] | None = None, members: int = 1) -> str:
    """The text of a file that trains as the run does; `command` is quoted in it.

    It trains `members` seeds in one program, from the run's on. `sources` maps modules to texts that are used in place
    of their files.
    """
    choice = choose(run, members)
    linker = Linker(choice.array, choice.replaced, sources)
    linker.program.member = linker.link
    entry = linker.link(f"{PARTS}.command", "main")
    program = linker.program
    choice.prepare(program)
    specialise(program, entry, choice.facts())
    implementation = choice.implementation
    sections = layout.ordered(program, implementation)
    layout.apply_names(program, layout.name_all(program, implementation))
    head = header(run, command, program)
    body = layout.body_text(sections).replace("an InputError", "a ValueError").replace("InputError", "ValueError")
    if not choice.sees_bytes:
        body = body.replace("; bytes are divided by 255", "")
    text = f"{head}\n\n{layout.import_text(program)}\n\n{body}\n\n"
    return formatted(text + 'if __name__ == "__main__":\n    main()\n')


KEEPING = f"On Linux start it with {' '.join(map('='.join, ENVIRONMENT.items()))}: freed memory is then kept.\n"
"""What benchback does by itself where PyTorch is imported, see `backends/torch_memory.py`."""


def header(run: Run, command: str, program: Program) -> str:
    """The docstring of the file: what it is, where it comes from, and what it needs."""
    needed = {x.module.split(".")[0] for x in program.imports.values()} - set(sys.stdlib_module_names)
    distribution = {spec.module: spec.package for spec in registry.BACKENDS.values()}
    packages = sorted({distribution.get(name, name) for name in needed})
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    start = KEEPING if run.framework == "torch" else ""
    title = f"{registry.ALGORITHMS[run.algorithm].title} in {registry.BACKENDS[run.backend].title}, on {run.env}"
    return f'''"""{title}.

Ejected from benchback {__version__} (Apache-2.0); the same seed gives the same numbers there and here:
    {command}
Runs with {versions}.
{start}"""'''


def formatted(text: str) -> str:
    """The text as ruff formats it."""
    options = ["format", "--isolated", "--line-length", str(LINE_LENGTH), "--target-version", "py311", "-"]
    done = subprocess.run([sys.executable, "-m", "ruff", *options], input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the ejected text is no Python: {done.stderr}\n{text}")
    return done.stdout
