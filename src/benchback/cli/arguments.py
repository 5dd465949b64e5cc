"""Shared by the verbs: parsing flags, thread counts, caches, and requests to stop."""

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import tyro

from benchback.errors import InputError

Imports = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(name="import")]]
"""The option --import of a verb; `import_first` has imported the modules before the verb starts."""


def parse(flags: Any, arguments: list[str], verb: str, default: Any = None) -> Any:
    """Command-line arguments as an instance of the dataclass `flags`."""
    options = {"prog": f"benchback {verb}", "args": arguments, "config": (tyro.conf.OmitArgPrefixes,)}
    return tyro.cli(flags, **options) if default is None else tyro.cli(flags, default=default, **options)


def positional(arguments: list[str], verb: str, what: str) -> tuple[str, list[str]]:
    """The leading positional argument and the rest."""
    if not arguments or arguments[0].startswith("-"):
        raise InputError(f"{verb} needs {what}; see benchback {verb} --help")
    return arguments[0], arguments[1:]


def parse_named(flags: Any, arguments: list[str], verb: str, placeholder: str, what: str) -> tuple[str, Any]:
    """The leading positional argument, and the flags after it; `what` describes it in the error when it is missing."""
    if arguments and arguments[0] in ("-h", "--help"):
        parse(flags, arguments, f"{verb} {placeholder}")
    name, rest = positional(arguments, verb, what)
    return name, parse(flags, rest, f"{verb} {placeholder}")


def limit_threads(threads: int) -> None:
    """Set the thread count of every library, before any of them is imported."""
    if threads < 1:
        raise InputError(f"threads={threads} must be at least 1")
    # XLA's CPU client sizes its thread pool by NPROC.
    for name in ("NPROC", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def limit_threads_early(arguments: list[str]) -> None:
    """Set the thread counts before the arguments are parsed: an own environment may import a framework there."""
    asked = value_of("--threads", arguments) or "1"
    if asked.isdecimal() and int(asked) > 0:  # others are refused when they are parsed
        limit_threads(int(asked))


def import_first(arguments: list[str]) -> None:
    """Import the modules of every --import, before anything is looked up by name."""
    from benchback.imports import import_all

    if names := values_of("--import", arguments):
        limit_threads_early(arguments)
        import_all(names)


def with_imports(fields: Mapping[str, Any], arguments: list[str]) -> dict[str, Any]:
    """The fields of a run, with the modules of every --import that it does not name yet."""
    own = fields.get("imports") or []
    names = [name for name in values_of("--import", arguments) if name not in own]
    return {**fields, "imports": [*own, *names]} if names else dict(fields)


def tell_notes(*ids: str) -> None:
    """Print to stderr how the spaces of these environments were changed, each sentence once."""
    from benchback import envs

    for id in dict.fromkeys(ids):
        for note in envs.about(id).notes:
            print(f"note: {envs.split(id).base}: {note}", file=sys.stderr)


def keep_programs(folder: Path) -> None:
    """Set XLA's and inductor's compile cache to `folder`, before either is imported."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder.resolve() / "xla")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.resolve() / "inductor")


def value_of(option: str, arguments: list[str]) -> str | None:
    """The value of `option` on the command line, if given; needed before the rest can be parsed."""
    return next(iter(values_of(option, arguments)), None)


def values_of(option: str, arguments: list[str]) -> list[str]:
    """The values of an option that may be given more than once."""
    found = []
    for argument, following in zip_longest(arguments, arguments[1:]):
        if argument == option and following is not None:
            found.append(following)
        elif argument.startswith(option + "="):
            found.append(argument.removeprefix(option + "="))
    return found


def on_interrupt() -> Callable[[], bool]:
    """Function that tells whether the user has asked to stop; a second request stops at once."""
    asked = []

    def ask(signum: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(signum)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return lambda: bool(asked)


def on_stop() -> Callable[[], bool]:
    """Function that tells whether the user has asked to stop, after which repeated requests are ignored."""
    asked: list[int] = []
    numbers = signal.SIGINT, signal.SIGTERM

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)
        # Unlike a Python handler, SIG_IGN lasts until the process exits: a repeated request gives the same exit code.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    for number in numbers:
        signal.signal(number, ask)
    return lambda: bool(asked)


SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(budget: str) -> float:
    """Seconds of `90s`, `5m` or `1h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise InputError(f"--budget {budget} must be a time greater than 0 with its unit, e.g. 90s, 5m or 1h")
    return seconds
