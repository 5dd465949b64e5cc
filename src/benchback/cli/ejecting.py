"""`benchback eject`: one standalone file to start a project from."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchback.cli.arguments import parse, value_of
from benchback.errors import InputError

Config = TypeVar("Config")


@dataclass(frozen=True)
class EjectFlags(Generic[Config]):
    """Write one standalone file that trains as a run does and imports nothing of ours.

    Example: benchback eject ppo --backend equinox --env gymnax/CartPole-v1 --out my_ppo.py
    The file contains only what the choice needs; its own flags are the numbers of the algorithm.
    """

    run: Config
    out: Path | None = None
    """Python file to write; must not exist. By default the name of the algorithm, e.g. ppo.py."""
    config: Path | None = None
    """YAML file with fields of the run (as config.yaml in a run folder); flags override it."""


def eject(arguments: list[str]) -> int:
    from benchback import registry
    from benchback.tools.eject import eject
    from benchback.training import run_dir
    from benchback.training.run import Run

    command = f"benchback eject {shlex.join(arguments)}"
    algorithm = registry.DEFAULT_ALGORITHM
    if arguments and not arguments[0].startswith("-"):
        algorithm, arguments = arguments[0], arguments[1:]
    fields: dict[str, Any] = {"algorithm": algorithm}
    if given := value_of("--config", arguments):
        fields |= run_dir.read_config(Path(given))
    default = EjectFlags(run=Run.from_dict(fields))
    flags_type = EjectFlags[Run[registry.config(fields["algorithm"])]]
    flags = parse(flags_type, arguments, f"eject {algorithm}", default)
    out = flags.out or Path(f"{flags.run.algorithm}.py")
    check_new(out)
    text = eject(flags.run, command)
    with out.open("x") as file:
        file.write(text)
    print(f"{out}: {len(text.splitlines())} lines")
    print(f"train:    python {shlex.quote(str(out))} --seed 0 --checkpoint trained.safetensors")
    print(f"continue: python {shlex.quote(str(out))} --resume trained.safetensors --num-iterations NUMBER")
    return 0


def check_new(out: Path) -> None:
    """Raise an InputError unless `out` can be a new Python file."""
    if out.suffix != ".py":
        raise InputError(f"out={out} must be a Python file, e.g. {out.with_suffix('.py')}")
    if out.exists():
        raise InputError(f"out={out} exists; choose another name, e.g. {out.with_stem(out.stem + '_2')}")
