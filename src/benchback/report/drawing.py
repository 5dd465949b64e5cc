"""Charts as SVG and PNG, drawn on all processors: after reading the store it is most of a report's work."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

PIXELS_PER_INCH = 144
FEW = 4
"""Drawings that are done before another process would have started."""

Drawing = tuple[bytes, bytes]
"""The same chart as SVG and as PNG."""


def draw(specification: Any) -> Drawing:
    """A whole Vega-Lite specification, drawn."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(specification)
    return svg.encode(), vl_convert.svg_to_png(svg, ppi=PIXELS_PER_INCH)


@contextmanager
def drawings(specifications: Sequence[Any], processors: int) -> Iterator[Iterator[Drawing]]:
    """The drawings in order; they are begun at once, and ready or not when they are asked for."""
    if processors < 2 or len(specifications) <= FEW:
        yield map(draw, specifications)
        return
    with ProcessPoolExecutor(processors, mp_context=get_context("spawn")) as pool:
        yield pool.map(draw, specifications)
