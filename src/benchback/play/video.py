"""Frames into a file, mp4 or gif by its suffix; the file is there when it is whole."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchback.errors import InputError

SUFFIXES = (".mp4", ".gif")
FASTEST_GIF = 50.0
"""Frames per second: viewers show anything faster at ten."""


@contextlib.contextmanager
def needed(extra: str) -> Iterator[None]:
    """Inside, a Python package that is not there is an InputError that names the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise InputError(f"{_missing(error)} is needed and not installed: pip install 'benchback[{extra}]'") from None


def _missing(error: ImportError) -> str:
    named = error.name or str(error).partition(" is not installed")[0]
    return named.partition(".")[0][:60]


def check(out: Path) -> None:
    """Refuse a file that could not be written, before anything is played."""
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {out}: videos are {' or '.join(SUFFIXES)}; choose one by the suffix")
    if out.exists():
        raise InputError(f"{out} exists; choose another --out or remove it")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder; create it, or choose another --out")
    with needed("play"):
        import imageio.v2  # noqa: F401
        import imageio_ffmpeg  # noqa: F401


@contextlib.contextmanager
def writer(out: Path, frames_per_s: float) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends a frame; `out` appears when the context ends well."""
    import imageio.v2 as imageio

    draft = out.with_name(f".{out.stem}.partial{out.suffix}")
    is_gif = out.suffix.lower() == ".gif"
    options: dict[str, Any] = {"fps": frames_per_s, "macro_block_size": 2}  # h264 halves the colours' resolution
    if is_gif:
        options = {"duration": 1000 / min(frames_per_s, FASTEST_GIF), "loop": 0}
    try:
        opened: Any = imageio.get_writer(draft, format="GIF" if is_gif else "FFMPEG", mode="I", **options)  # type: ignore
        with opened as file:
            yield lambda image: _append(file, image)
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def _append(file: Any, image: np.ndarray) -> None:
    with warnings.catch_warnings():
        # The first frame starts ffmpeg. JAX warns of any fork, and this one leads straight to another program.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        file.append_data(np.ascontiguousarray(image))
