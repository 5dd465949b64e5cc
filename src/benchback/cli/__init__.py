"""The command line: each verb with its printing. Frameworks are imported by the verbs that need them."""

import shutil
import sys
import textwrap
from importlib import import_module
from typing import NoReturn

from benchback import __version__
from benchback.cli.help import USAGE
from benchback.errors import InputError, install

VERBS = {
    "train": ("training", "train"),
    "eval": ("training", "evaluate"),
    "play": ("training", "play"),
    "eject": ("ejecting", "eject"),
    "tune": ("tuning", "tune"),
    "discover": ("discovering", "discover"),
    "advise": ("advising", "advise"),
    "profile": ("profiling", "profile"),
    "studies": ("studies", "studies_verb"),
    "list": ("matrix", "list_all"),
    "conform": ("conforming", "conform"),
    "parity": ("matrix", "parity"),
    "peers": ("workloads", "peers"),
    "micro": ("workloads", "micro"),
    "scale": ("workloads", "scale"),
    "plan": ("planning", "plan"),
    "run": ("running", "run"),
    "status": ("stores", "status"),
    "list-runs": ("stores", "list_runs"),
    "show": ("stores", "show_run"),
    "verify": ("stores", "verify"),
    "export": ("stores", "export"),
    "report": ("reporting", "report"),
    "compare": ("reporting", "compare"),
    "regress": ("regressing", "regress"),
    "import": ("reporting", "import_results"),
    "doctor": ("machines", "doctor"),
    "envs": ("machines", "environments"),
}
"""Verb -> (module beside this one, function of the arguments that returns an exit code)."""


def main() -> None:
    """Entry point; turns errors that a user can fix into one line and an exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        print(__version__)
        sys.exit(0)
    try:
        from benchback.cli.arguments import import_first
        from benchback.registry import choose

        verb = choose("verb", arguments[0], VERBS)
        import_first(arguments[1:])
        module, function = VERBS[verb]
        sys.exit(getattr(import_module(f"benchback.cli.{module}"), function)(arguments[1:]))
    except InputError as error:
        fail(str(error), 2)
    except ModuleNotFoundError as error:
        fail(missing(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(74)
    except OSError as error:
        fail(": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error)))), 74)
    except KeyboardInterrupt as stop:
        fail(str(stop) or "interrupted", 130, "")
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        fail("there is not enough memory for this; choose fewer environments, members or steps, or a smaller model", 2)


def missing(error: ModuleNotFoundError) -> str:
    """What to install; an error of our own keeps its traceback."""
    from benchback.registry import extra_of

    extra = extra_of(error.name or "")
    if extra is None:
        raise error
    return f"{error.name} is needed and not installed: {install(extra)}"


def is_out_of_memory(error: Exception) -> bool:
    """Whether NumPy, XLA or torch could not get the memory that it was asked for."""
    words = ("RESOURCE_EXHAUSTED", "DefaultCPUAllocator", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def fail(message: str, code: int, label: str = "error: ") -> NoReturn:
    """Exit with one line, escaped: names given by the user may hold any character."""
    shown = "".join(x if x.isprintable() else ascii(x)[1:-1] for x in message)
    line = f"benchback: {label}{shown if len(shown) <= 2000 else shown[:1997] + '...'}"
    if sys.stderr.isatty():
        line = textwrap.fill(line, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)
    sys.exit(code)
