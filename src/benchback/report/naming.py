"""Plain names of variants for people; the technical ones, `linen/jit/phase`, stay in tables and tooltips."""

from collections import Counter
from collections.abc import Mapping

from benchback.analysis.source import Source
from benchback.measure.record import Cell
from benchback.registry import BACKENDS

USUAL_UNIT = "phase"


def plain_name(cell: Cell) -> str:
    """`Flax NNX, split` of `nnx/split/phase`; other units, gradients and suites are said, and a copy is called so."""
    if cell.kind != "training":
        return cell.variant
    backend, mode = str(cell.run["backend"]), str(cell.run["mode"])
    name = f"{BACKENDS[backend].title if backend in BACKENDS else backend}, {mode}"
    name += "" if cell.unit == USUAL_UNIT else f", {cell.unit}"
    # What else the technical name says after backend, mode and unit, e.g. other gradients.
    named = cell.variant.removesuffix("'").partition(" on ")[0].split("/")
    name += "".join(f", {part}" for part in named[3:])
    name += f", {cell.other_suite} environments" if cell.other_suite else ""
    return f"{name}, copy" if cell.twin else name


def plain_names(source: Source) -> Mapping[str, str]:
    """Variant -> plain name; a name that two variants would share is left to none of them."""
    found = {cell.variant: plain_name(cell) for cell in source.cells.values()}
    shared = Counter(found.values())
    return {variant: name for variant, name in found.items() if shared[name] == 1}
