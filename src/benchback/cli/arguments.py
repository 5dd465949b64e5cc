"""Shared by the verbs: parsing flags, thread counts, caches, and requests to stop."""

import os
import signal
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from types import FrameType
from typing import Any

from benchback.errors import InputError


def parse(flags: Any, arguments: list[str], verb: str, default: Any = None) -> Any:
    """Command-line arguments as an instance of the dataclass `flags`."""
    import tyro

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


def keep_programs(folder: Path) -> None:
    """Set XLA's and inductor's compile cache to `folder`, before either is imported."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder.resolve() / "xla")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.resolve() / "inductor")


def value_of(option: str, arguments: list[str]) -> str | None:
    """The value of `option` on the command line, if given; needed before the rest can be parsed."""
    for argument, following in zip_longest(arguments, arguments[1:]):
        if argument == option:
            return following
        if argument.startswith(option + "="):
            return argument.removeprefix(option + "=")
    return None


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


def each(*functions: Callable[..., None]) -> Callable[..., None]:
    """A function that calls all the given ones in order."""

    def call(*arguments: Any) -> None:
        for function in functions:
            function(*arguments)

    return call
