"""Shared by the verbs: parsing flags, thread counts, caches, and requests to stop."""

import inspect
import io
import os
import re
import shutil
import signal
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import dropwhile, takewhile, zip_longest
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal, get_origin

import tyro

from benchback.cli.help import example
from benchback.errors import InputError, near

Imports = tyro.conf.UseAppendAction[Annotated[tuple[str, ...], tyro.conf.arg(name="import")]]
"""The option --import of a verb; `import_first` has imported the modules before the verb starts."""


def parse(flags: Any, arguments: list[str], verb: str, default: Any = None) -> Any:
    """Command-line arguments as an instance of the dataclass `flags`; an InputError where they are not understood."""
    known = options_of(flags, default)
    check_options(known, arguments)
    options = {"prog": f"benchback {verb}", "args": arguments, "config": (tyro.conf.OmitArgPrefixes,)}
    options |= {"description": description(flags, verb), "registry": rules(), "return_unknown_args": True}
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            found, unknown = tyro.cli(flags, **options | ({} if default is None else {"default": default}))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{complaint(said.getvalue())}; see benchback {verb} --help") from None
    if unknown:
        raise InputError(unknown_text(unknown, known, verb))
    return found


@dataclass(frozen=True)
class Option:
    """What has to be known of an option before the command line is parsed."""

    repeats: bool
    """Whether it may be given more than once."""
    many: bool
    """Whether it takes any number of values."""


def options_of(flags: Any, default: Any) -> dict[str, Option]:
    """Every option of the dataclass `flags` and of those in it."""
    found: dict[str, Option] = {}
    for place in fields(default or get_origin(flags) or flags):
        value = getattr(default, place.name, None)
        if is_dataclass(value):
            found |= options_of(type(value), value)
            continue
        notes = getattr(place.type, "__metadata__", ())
        name = next((note.name for note in notes if getattr(note, "name", None)), place.name)
        repeats = "append" in str(notes).lower()
        found[f"--{name.replace('_', '-')}"] = Option(repeats, get_origin(place.type) is tuple and not repeats)
    return found


def check_options(known: Mapping[str, Option], arguments: Sequence[str]) -> None:
    """Raise an InputError if an option is given twice, or without values: it would be ignored without a word."""
    given = Counter(_option(x) for x in arguments if x.startswith("--"))
    for option, count in given.items():
        if count > 1 and option in known and not known[option].repeats:
            raise InputError(f"{option} is given {count} times; keep one of them")
    for option, following in zip_longest(arguments, arguments[1:], fillvalue="--"):
        name = _option(option)
        alone = option.startswith("--") and "=" not in option and following.startswith("--")
        if alone and name in known and known[name].many:
            raise InputError(f"{name} needs at least one value; leave it out for the default")


def _option(argument: str) -> str:
    """`--num-envs` of `--num_envs=4`."""
    return argument.partition("=")[0].replace("_", "-")


def description(flags: Any, verb: str) -> str:
    """What the help of a verb says before its options, wrapped: tyro prints it as it is.

    Of lines that begin with a letter tyro makes one.
    """
    paragraphs = (inspect.getdoc(get_origin(flags) or flags) or "").split("\n\n")
    width = shutil.get_terminal_size().columns
    wrapped = [textwrap.fill(" ".join(x.split()), width, subsequent_indent="  ") for x in paragraphs]
    return "\n\n".join([*wrapped, f"example: {example(verb)}"])


def rules() -> Any:
    """How tyro reads whole numbers, of which 1e6 is one, and vectors, which may be in a file; and describes fields."""
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

    from benchback.training.run import whole_number

    registry = ConstructorRegistry()

    @registry.primitive_rule
    def whole(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        if info.type is not int:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda given: whole_number(given[0]),
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    @registry.primitive_rule
    def vector(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        if info.type != tuple[float, ...]:
            return None
        return PrimitiveConstructorSpec(
            nargs="*",
            metavar="FILE|NUMBERS",
            instance_from_str=numbers_of,
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda value: [f"{len(value)} numbers" if value else "none"],
        )

    describe_in_one_line(registry)
    return registry


def describe_in_one_line(registry: Any) -> None:
    """Let tyro describe the fields of dataclasses without the line breaks of their sources, which it would keep."""
    from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

    asked: list[StructTypeInfo] = []

    @registry.struct_rule
    def described(info: StructTypeInfo) -> StructConstructorSpec | None:
        if asked or not is_dataclass(get_origin(info.type) or info.type):
            return None
        asked.append(info)
        found = ConstructorRegistry.get_struct_spec(info)
        asked.clear()
        if not isinstance(found, StructConstructorSpec):
            return None
        return replace(found, fields=tuple(replace(x, helptext=partial(in_one_line, x.helptext)) for x in found.fields))


def in_one_line(said: Any) -> str | None:
    """What is said of a field, in one line."""
    text = said() if callable(said) else said
    return " ".join(str(text).split()) if text else None


def numbers_of(given: Sequence[str]) -> tuple[float, ...]:
    """The numbers that are given, or those in the file that is given."""
    from benchback.training.objectives import read

    try:
        return tuple(map(float, given))
    except ValueError:
        if len(given) > 1:
            raise InputError(f"{' '.join(given)[:60]}: give numbers only, or one file that contains them") from None
        return read(Path(given[0]))


def has_words(line: str) -> bool:
    """Whether a line is more than a ruler."""
    return bool(re.search(r"\w", line))


def complaint(said: str) -> str:
    """The first paragraph of an error in a box, as one line."""
    lines = [line.strip(" │|") for line in re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()]
    # The title, a ruler where the box cannot be drawn, the paragraph, a ruler.
    text = takewhile(has_words, dropwhile(lambda line: not has_words(line), lines[1:]))
    words = " ".join(text).rstrip(".")
    words = re.sub(r"^Error parsing (--[\w-]+): ", r"\1: ", words)
    return words[:1].lower() + words[1:] if words else "the options are not understood"


def unknown_text(unknown: Sequence[str], known: Iterable[str], verb: str) -> str:
    """Which argument is unknown, and which one is meant."""
    option = next((x for x in unknown if x.startswith("-")), None)
    more = f"benchback {verb} --help shows them"
    if option is None:
        return f"{unknown[0][:100]!r} is not understood: {verb} takes options only; {more}"
    found = near(option.partition("=")[0], known)
    return f"{option[:100]} is not an option of {verb}; " + (f"did you mean {found}?" if found else more)


def positional(arguments: list[str], verb: str, what: str) -> tuple[str, list[str]]:
    """The leading positional argument and the rest."""
    if not arguments or arguments[0].startswith("-") or not arguments[0]:
        raise InputError(f"{verb} needs {what} first, e.g. {example(verb)}")
    return arguments[0], arguments[1:]


def parse_named(flags: Any, arguments: list[str], verb: str, placeholder: str, what: str) -> tuple[str, Any]:
    """The leading positional argument, and the flags after it; `what` describes it in the error when it is missing."""
    if asks_for_help(arguments):
        parse(flags, ["--help"], f"{verb} {placeholder}")
    name, rest = positional(arguments, verb, what)
    return name, parse(flags, rest, f"{verb} {placeholder}")


def leading(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The leading positional argument, if there is one, and the rest."""
    given = bool(arguments) and not arguments[0].startswith("-")
    return (arguments[0], arguments[1:]) if given else (None, arguments)


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether the help of a verb is asked for before its positional arguments are given."""
    return any(x in ("-h", "--help") for x in arguments[:1])


def with_config(fields: Mapping[str, Any], given: str | Path | None, named: str | None) -> dict[str, Any]:
    """The fields of a run, replaced by those in a YAML file if one is given.

    `named` is the algorithm that the command line names; a file of another one is refused.
    """
    from benchback.training.run_dir import read_config

    if given is None:
        return dict(fields)
    content = read_config(Path(given))
    if named is not None and content.get("algorithm", named) != named:
        raise InputError(
            f"--config {given} is of algorithm {str(content['algorithm'])[:40]} and the command line says {named}; "
            "leave one of them out"
        )
    return {**fields, **content}


def check_seed(seed: int) -> None:
    """Raise an InputError unless every random generator takes the seed."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed={seed} must lie between 0 and {2**32 - 1}")


MOST_THREADS = 1024


def limit_threads(threads: int) -> None:
    """Set the thread count of every library, before any of them is imported."""
    if threads < 1:
        raise InputError(f"threads={threads} must be at least 1")
    if threads > MOST_THREADS:
        raise InputError(f"threads={threads} are too many; this machine has {os.cpu_count()} processors")
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
    from benchback.plugins.imports import import_all

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


MOST_KEPT_BYTES = 2**30
"""XLA's programs kept by default; the least recently used are dropped first."""


def keep_programs(folder: Path | Literal["off"] | None) -> None:
    """Set XLA's and inductor's compile caches, before either is imported.

    Without a folder, to one among the user's caches, unless the variables that the frameworks read say otherwise.
    """
    if folder == "off":
        os.environ["JAX_COMPILATION_CACHE_DIR"] = ""
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    elif folder is not None:
        os.environ.update(caches_in(folder))
    elif os.access(place := programs_folder(), os.W_OK):
        ours = caches_in(place)
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # a folder of the user's own has no limit
            ours["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(MOST_KEPT_BYTES)
        os.environ.update(ours | os.environ)


def caches_in(folder: Path) -> dict[str, str]:
    """The variables that make the frameworks keep what they compile, however small, in `folder`."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder.resolve() / "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(folder.resolve() / "inductor"),
    }


def programs_folder() -> Path:
    """Where compiled programs are kept by default, made if need be; one for each kind of processor."""
    from benchback.measure.caches import cache_folder
    from benchback.measure.machine import processor_kind

    folder = cache_folder("programs") / processor_kind()
    with suppress(OSError):  # where it cannot be made nothing is kept
        folder.mkdir(parents=True, exist_ok=True)
    return folder


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


def each(*functions: Callable[..., None]) -> Callable[..., None]:
    """A function that calls all the given ones in order."""

    def call(*arguments: Any) -> None:
        for function in functions:
            function(*arguments)

    return call
