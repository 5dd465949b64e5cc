"""Verbs about the matrix of backends: list it, and check the parity of its implementations."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import Console

from benchback import envs, registry
from benchback.cli.arguments import Imports, limit_threads, parse
from benchback.cli.tables import table
from benchback.envs.wrappers import KINDS as WRAPPERS


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
    backends: tuple[str, ...] = ()
    """Backends to measure; all by default."""
    levels: tuple[str, ...] = ()
    """Levels to measure: L0 forward, L1 one step, L2 twenty, L3 update and iterations, L4 modes and units."""
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
    """Print algorithms x backends x modes x units, and the environments."""
    if as_json:
        backends = {
            name: {"title": s.title, "family": s.family, "modes": s.modes, "best": s.best, "units": s.units}
            for name, s in registry.BACKENDS.items()
        }
        algorithms = {name: asdict(known) | {"backends": backends} for name, known in registry.ALGORITHMS.items()}
        print(json.dumps({"algorithms": algorithms, "environments": [*envs.ids(), *envs.plugins()]}, indent=2))
        return
    console = Console()
    for algorithm, known in registry.ALGORITHMS.items():
        rows = [
            (name, s.title, " ".join(f"[b]{m}[/b]" if m == s.best else m for m in s.modes), " ".join(s.units))
            for name, s in registry.BACKENDS.items()
        ]
        console.print(
            table(f"{algorithm}: {known.title}", ("backend", "framework", "modes (best in bold)", "units"), rows)
        )
    for suite, names in envs.SUITES.items():
        more = f"  ... {envs.EXTERNAL[suite]}" if suite in envs.EXTERNAL else ""
        console.print(f"[b]{suite}/[/b]  " + "  ".join(names) + more, highlight=False)
    own = "  ".join(f"{id.partition('/')[2]} ({origin})" for id, origin in envs.plugins().items())
    console.print(f"[b]plugin/[/b]  {own or 'none: no installed package has entry points for one'}", highlight=False)
    console.print("[b]python:[/b]  MODULE.NAME, an environment of your own", highlight=False)
    console.print(f"wrappers, after any of them: +{'  +'.join(WRAPPERS)}", highlight=False)


def parity(arguments: list[str]) -> int:
    from benchback.parity import LEVELS, PROVEN, measure

    flags = parse(ParityFlags, arguments, "parity")
    registry.choose("algorithm", flags.algorithm, registry.ALGORITHMS)
    backends = flags.backends or tuple(registry.BACKENDS)
    for name in backends:
        registry.check_execution(name, flags.mode, flags.unit)
    for level in flags.levels:
        registry.choose("level", level, LEVELS)
    for dtype in flags.dtypes:
        registry.choose("dtype", dtype, ("float32", "float64"))
    limit_threads(1)
    # L4 is about all modes and units.
    levels = flags.levels or (LEVELS if (flags.mode, flags.unit) == ("none", "phase") else PROVEN)
    rows = measure(
        flags.algorithm,
        backends,
        flags.dtypes,
        levels,
        mode=flags.mode,
        unit=flags.unit,
        gradients=flags.gradients,
    )
    return 0 if print_parity(rows, flags.json) else 1


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
