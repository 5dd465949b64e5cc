"""The command line: each verb with its printing. Frameworks are imported by the verbs that need them."""

import sys
from importlib import import_module

from benchback import __version__
from benchback.errors import InputError

USAGE = """\
benchback: which neural-network backend should I build my reinforcement-learning project on?

usage: benchback VERB [options]        benchback VERB --help for the options of one

  train ALGORITHM    train one agent, or many in one program (--seeds, --vary); writes a run folder
                     (also: train --resume RUN)
  eval RUN           play a trained agent greedily and print its returns (RUN#17: member 17 of many)
  play RUN           a video of a trained agent, mp4 or gif
  eject ALGORITHM    one standalone Python file to start a project from, with nothing of ours in it
  tune SPACE         grid and random search over any fields of a run; run it again to continue
  advise             which backend for a project of so many steps and seeds, measured here and now
  profile ALGORITHM  where an iteration's time goes: parts, cProfile, the framework's own trace
  list               algorithms x backends x modes x units, and the environments
  parity             measure how far each backend is from a float64 oracle
  peers              the same PPO work in rejax, stable-baselines3, sbx and baselines, interleaved
  micro              what single operations cost in each backend: forward, collect, update, step
  scale              throughput and memory over environments, width and threads

  plan STUDY         what a study would run, in which order, and what it would take
  run STUDY          run a study in isolated processes; run it again to continue
  status STORE       where a campaign stands
  list-runs STORE    every attempt; show STORE RUN for one of them with all its samples
  verify STORE       whether a store can be believed: checksums, ledgers, seeds
  export STORE       runs and samples as csv, json or parquet
  report STORE       the verdict as one offline page, with every chart and table as files
  compare A B        two stores, strata or variants side by side; exit 1 if something got slower
  import FILE        results of benchback-rl, its tables by its own formulas
  doctor             whether this machine can measure, and what to change
  envs time          what a step of each environment costs

exit codes: 0 ok, 1 a claim failed or the doctor says no, 2 wrong usage or input, 3 finished with failed runs,
            74 input/output error, 130 interrupted
"""

VERBS = {
    "train": ("training", "train"),
    "eval": ("training", "evaluate"),
    "play": ("training", "play"),
    "eject": ("ejecting", "eject"),
    "tune": ("tuning", "tune"),
    "advise": ("advising", "advise"),
    "profile": ("profiling", "profile"),
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
