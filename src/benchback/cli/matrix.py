"""Verbs about the matrix of backends: list it, and check the parity of its implementations."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from itertools import chain
from typing import Annotated, Any, Literal, get_args

from rich.console import Console
from rich.markup import escape
from tyro.conf import arg

from benchback import envs, registry
from benchback.cli.arguments import Imports, limit_threads, parse
from benchback.cli.tables import table
from benchback.envs.wrappers import KINDS as WRAPPERS
from benchback.errors import InputError, install
from benchback.plugins import Merged


@dataclass(frozen=True)
class ListFlags:
    """Show algorithms, backends, modes, units and environments."""

    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class ParityFlags:
    """Measure how far each backend is from a naive float64 oracle and each mode from `none`."""

    algorithm: str = registry.DEFAULT_ALGORITHM
    """Algorithm to measure."""
    backends: Annotated[tuple[str, ...], arg(aliases=("--backend",))] = ()
    """Backends to measure; all by default."""
    network: str = "mlp"
    """Kind of network; one without an oracle is compared with another backend, and with its own forward in NumPy."""
    levels: tuple[str, ...] = ()
    """Levels to measure: L0 forward, L1 one step, L2 twenty, L3 update and iterations, L4 modes and units; laws of
    the interface, compiles (modes compile once), probes (known values are learnt): by default of plug-ins only."""
    dtypes: tuple[str, ...] = ("float32", "float64")
    """Floating-point types to measure."""
    mode: str = "none"
    """Compile mode in which L0 to L3 are measured."""
    unit: str = "phase"
    """Unit in which L0 to L3 are measured."""
    gradients: Literal["framework", "reordered"] = "framework"
    """Gradients of the JAX family in L0 to L3."""
    import_: Imports = ()
    """Module to import first, which may register environments. May be given more than once."""
    json: bool = False
    """Print JSON."""


def list_all(arguments: list[str]) -> int:

    print_matrix(parse(ListFlags, arguments, "list").json)
    return 0


def print_matrix(as_json: bool) -> None:
    """Print algorithms x backends x modes x units, networks and environments, and where each comes from."""
    if as_json:
        print(json.dumps(matrix(), indent=2))
        return
    console = Console()
    for algorithm, known in registry.ALGORITHMS.items():
        console.print(
            table(f"{algorithm}: {known.title}{origin(registry.ALGORITHMS, algorithm)}", COLUMNS, rows(algorithm))
        )
    for name in registry.NETWORKS:
        where = ", ".join(registry.NETWORKS[name]) or "every backend"
        users = f"; {', '.join(registry.users_of(name))}" if registry.users_of(name) else ""
        console.print(f"[b]network {name}[/b]  {where}{users}{origin(registry.NETWORKS, name)}", highlight=False)
    for name, having in surrogates().items():
        console.print(f"[b]surrogate {name}[/b]  {', '.join(having)}", highlight=False)
    for suite, names in envs.SUITES.items():
        more = f"  ... {envs.EXTERNAL[suite]}" if suite in envs.EXTERNAL else ""
        console.print(f"[b]{suite}/[/b]  " + "  ".join(names) + more, highlight=False)
    own = "  ".join(f"{id.partition('/')[2]} ({origin})" for id, origin in envs.plugins().items())
    console.print(f"[b]plugin/[/b]  {own or 'none: no installed package has entry points for one'}", highlight=False)
    console.print("[b]python:[/b]  MODULE.NAME, an environment of your own", highlight=False)
    console.print(f"wrappers, after any of them: +{'  +'.join(WRAPPERS)}", highlight=False)
    for known in KINDS:
        for name, reason in known.broken.items():
            console.print(f"[b]broken: {known.kind} {name}[/b]  {escape(reason)}", highlight=False)


KINDS = (registry.ALGORITHMS, registry.BACKENDS, registry.NETWORKS)
COLUMNS = ("backend", "framework", "modes (best in bold)", "units", "from")


def origin(known: Merged, name: str) -> str:
    """In brackets, whence a plug-in comes; of what is built in nothing."""
    return "" if name in known.built_in else f" (from {known.origin(name)})"


def rows(algorithm: str) -> list[tuple[str, ...]]:
    """A row for each backend in which the algorithm is written."""
    specs = {name: registry.BACKENDS[name] for name in registry.backends_of(algorithm)}
    return [
        (
            name,
            s.title,
            " ".join(f"[b]{m}[/b]" if m == s.best else m for m in s.modes),
            " ".join(s.units),
            registry.BACKENDS.origin(name),
        )
        for name, s in specs.items()
    ]


def matrix() -> dict[str, Any]:
    """What `list` prints, as plain data."""
    backends = {
        name: {"title": s.title, "family": s.family, "modes": s.modes, "best": s.best, "units": s.units}
        | {"from": registry.BACKENDS.origin(name)}
        for name, s in registry.BACKENDS.items()
    }
    algorithms = {
        name: asdict(known)
        | {"from": registry.ALGORITHMS.origin(name)}
        | {"backends": {backend: backends[backend] for backend in registry.backends_of(name)}}
        for name, known in registry.ALGORITHMS.items()
    }
    networks = {
        name: {"backends": list(registry.NETWORKS[name]) or list(backends), "algorithms": registry.users_of(name)}
        | {"from": registry.NETWORKS.origin(name)}
        for name in registry.NETWORKS
    }
    broken = [
        {"kind": known.kind, "name": name, "reason": reason} for known in KINDS for name, reason in known.broken.items()
    ]
    found = {"algorithms": algorithms, "networks": networks, "environments": [*envs.ids(), *envs.plugins()]}
    return found | {"surrogates": {name: {"algorithms": x} for name, x in surrogates().items()}, "broken": broken}


def surrogates() -> dict[str, list[str]]:
    """Surrogate objectives -> the algorithms that offer them."""
    found: dict[str, list[str]] = {}
    for algorithm in registry.ALGORITHMS.built_in:
        field = registry.config(algorithm).__dataclass_fields__.get("surrogate")
        for name in get_args(field.type) if field else ():
            found.setdefault(name, []).append(algorithm)
    return found


def parity(arguments: list[str]) -> int:
    flags = parse(ParityFlags, arguments, "parity")
    registry.choose("algorithm", flags.algorithm, registry.ALGORITHMS)
    registry.choose("network", flags.network, registry.NETWORKS)
    check_parity_flags(flags)
    if (
        flags.network not in registry.NETWORKS.built_in
        and len(registry.backends_of(flags.algorithm, flags.network)) == 1
    ):
        note = f"only one backend has {flags.network}: there is no other to compare it with at level L3"
        Console(stderr=True).print(note, highlight=False)
    having = registry.backends_of(flags.algorithm, flags.network)
    if not flags.backends and (absent := [name for name in having if registry.missing_of(name)]):
        note = f"left out, since their packages are not installed: {', '.join(absent)}"
        Console(stderr=True).print(note, highlight=False)
    limit_threads(1)
    return 0 if print_parity(chain.from_iterable(map(partial(measured, flags), compared(flags))), flags.json) else 1


def compared(flags: ParityFlags) -> tuple[str, ...]:
    """The backends asked for; by default those that have the algorithm and the network, and are installed."""
    having = registry.backends_of(flags.algorithm, flags.network)
    return flags.backends or tuple(name for name in having if not registry.missing_of(name))


def check_parity_flags(flags: ParityFlags) -> None:
    """Raise an InputError for what does not exist or does not fit."""
    from benchback.parity import CHECKS, DTYPES, LEVELS

    if find_spec("jax") is None:
        cause = "parity needs jax for PyTorch too, since all backends get the same draws, made by JAX"
        raise InputError(f"{cause}, and it is not installed: {install('jax')}")

    for name in compared(flags) or registry.BACKENDS:
        registry.check_execution(name, flags.mode, flags.unit)
        registry.check_pair(flags.algorithm, name)
        registry.check_network(flags.network, name, flags.algorithm)
        registry.check_gradients(name, flags.gradients, flags.network)
    for level in flags.levels:
        registry.choose("level", level, (*LEVELS, *CHECKS))
    for dtype in flags.dtypes:
        registry.choose("dtype", dtype, DTYPES)


def measured(flags: ParityFlags, backend: str) -> Iterator[Any]:
    """Rows of one backend: levels, then checks."""
    from benchback.parity import CHECKS, LEVELS, PROVEN, check, measure

    names = (registry.ALGORITHMS, flags.algorithm), (registry.BACKENDS, backend), (registry.NETWORKS, flags.network)
    plugged = any(name not in known.built_in for known, name in names)
    # L4 is about all modes and units.
    usual = LEVELS if (flags.mode, flags.unit) == ("none", "phase") else PROVEN
    wanted = flags.levels or ((*usual, *CHECKS) if plugged else usual)
    yield from measure(
        flags.algorithm,
        [backend],
        flags.dtypes,
        [level for level in wanted if level in LEVELS],
        mode=flags.mode,
        unit=flags.unit,
        gradients=flags.gradients,
        network=flags.network,
    )
    yield from check(flags.algorithm, backend, [name for name in wanted if name in CHECKS], flags.network)


PARITY_COLUMNS = ("backend", "level", "dtype", "quantity", "deviation", "tolerance")


def print_parity(rows: Iterable[Any], as_json: bool) -> bool:
    """Print the deviation closest to its tolerance for each backend, level and dtype; whether all are within."""
    console, failed, worst = Console(stderr=True), False, {}
    with console.status("measuring parity") as status:
        for row in rows:
            failed |= not row.ok
            key = (row.backend, row.level, row.dtype)
            if key not in worst or strain(row) > strain(worst[key]):
                worst[key] = row
            status.update(f"measuring parity: {row.backend} {row.level} {row.dtype}")
    if as_json:
        listed = [
            {name: getattr(r, name) for name in ("algorithm", *PARITY_COLUMNS)} | {"ok": r.ok} for r in worst.values()
        ]
        print(json.dumps({"ok": not failed, "rows": listed}, indent=2))
        return not failed
    cells = [
        (
            r.backend,
            r.level,
            r.dtype,
            r.quantity,
            f"{r.deviation:.1e}",
            f"{r.tolerance:.1e}",
            "pass" if r.ok else "FAIL",
        )
        for r in worst.values()
    ]
    Console().print(table("largest deviation against its tolerance", (*PARITY_COLUMNS, "verdict"), cells))
    return not failed


def strain(row: Any) -> float:
    """Deviation over tolerance; infinite where it must be zero and is not, or is NaN."""
    if row.ok:
        return row.deviation / row.tolerance if row.tolerance else 0.0
    return math.inf
