"""The command line: each verb with its printing. Frameworks are imported by the verbs that need them."""

import sys
from importlib import import_module

from benchback import __version__
from benchback.cli.help import USAGE
from benchback.errors import InputError

VERBS = {
    "train": ("training", "train"),
    "eval": ("training", "evaluate"),
    "play": ("training", "play"),
    "tune": ("tuning", "tune"),
    "advise": ("advising", "advise"),
    "profile": ("profiling", "profile"),
    "studies": ("studies", "studies_verb"),
    "list": ("matrix", "list_all"),
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
        from benchback.registry import choose

        verb = choose("verb", arguments[0], VERBS)
        module, function = VERBS[verb]
        sys.exit(getattr(import_module(f"benchback.cli.{module}"), function)(arguments[1:]))
    except InputError as error:
        fail(str(error), 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(74)
    except OSError as error:
        fail(": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error)))), 74)
    except KeyboardInterrupt as stop:
        fail(str(stop) or "interrupted", 130, "")


def fail(message: str, code: int, label: str = "error: ") -> None:
    """Exit with one line, escaped: names given by the user may hold any character."""
    shown = "".join(x if x.isprintable() else ascii(x)[1:-1] for x in message)
    print(f"benchback: {label}{shown if len(shown) <= 2000 else shown[:1997] + '...'}", file=sys.stderr)
    sys.exit(code)
