"""`benchback eject`: one standalone file to start a project from."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from benchback.cli.arguments import leading, parse, value_of, with_config
from benchback.errors import InputError

Config = TypeVar("Config")


@dataclass(frozen=True)
class EjectFlags(Generic[Config]):
    """Write one standalone file that trains as a run does and imports nothing of ours.

    The file contains only what the choice needs; its own flags are the numbers of the algorithm.
    """

    run: Config
    out: Path | None = None
    """Python file to write; must not exist. By default the name of the algorithm, e.g. ppo.py."""
    population: int = 1
    """Seeds that the file trains, from the run's seed on: side by side in one program, in PyTorch one after another."""
    config: Path | None = None
    """YAML file with fields of the run (as config.yaml in a run folder); flags override it."""


def eject(arguments: list[str]) -> int:
    from benchback import registry
    from benchback.tools.eject import eject
    from benchback.training.run import Run

    command = f"benchback eject {shlex.join(arguments)}"
    named, arguments = leading(arguments)
    fields = with_config(
        {"algorithm": registry.DEFAULT_ALGORITHM if named is None else named}, value_of("--config", arguments), named
    )
    default = EjectFlags(run=Run.from_dict(fields))
    flags_type = EjectFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, f"eject {fields['algorithm']}", default)
    out = flags.out or Path(f"{flags.run.algorithm}.py")
    check_new(out)
    text = eject(flags.run, command, members=flags.population)
    check_name(out, text)
    with out.open("x") as file:
        file.write(text)
    print(f"{out}: {len(text.splitlines())} lines")
    print(f"train:    python {shlex.quote(str(out))} --seed 0 --checkpoint trained.safetensors")
    print(f"continue: python {shlex.quote(str(out))} --resume trained.safetensors --num-iterations NUMBER")
    return 0


def check_name(out: Path, text: str) -> None:
    """Raise an InputError if a file of that name would be imported in the place of a library that it needs."""
    if re.search(rf"^(?:import|from) {re.escape(out.stem)}\b", text, re.MULTILINE):
        raise InputError(f"out={out} has the name of a library that the file imports; use another, e.g. my_{out.name}")


def check_new(out: Path) -> None:
    """Raise an InputError unless `out` can be a new Python file."""
    from benchback.training.outputs import check_writable

    if out.suffix != ".py":
        raise InputError(f"out={out} must be a Python file, e.g. {out.with_suffix('.py')}")
    if out.exists():
        raise InputError(f"out={out} exists; choose another name, e.g. {out.with_stem(out.stem + '_2')}")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder; create it or choose another --out")
    check_writable(out)
