"""Plain names of variants for people; the technical ones, `linen/jit/phase`, are tooltips."""

from collections import Counter
from collections.abc import Mapping

from benchback.analysis.source import Source
from benchback.analysis.wording import variant_name


def plain_names(source: Source) -> Mapping[str, str]:
    """Variant -> plain name; a name that two variants would share is left to none of them."""
    found = {cell.variant: variant_name(cell) for cell in source.cells.values()}
    shared = Counter(found.values())
    return {variant: name for variant, name in found.items() if shared[name] == 1}
