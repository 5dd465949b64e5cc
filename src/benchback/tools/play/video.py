"""Writes frames to a file, mp4 or gif by its suffix; the file appears when it is complete."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchback.errors import InputError

PALETTES = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"
"""A palette of 256 colours per frame: a shared palette would need all frames in advance."""
FORMATS = {
    # yuv420p, which players expect, has half the resolution in colour, so sizes must be even.
    ".mp4": ("-c:v", "libx264", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"),
    # Viewers play anything faster than 50 frames per second at ten.
    ".gif": ("-filter_complex", f"fps=fps='min(source_fps,50)',{PALETTES}", "-loop", "0"),
}
"""Suffix -> ffmpeg's options."""


@contextlib.contextmanager
def needed(extra: str) -> Iterator[None]:
    """Context in which a missing Python package raises an InputError that names its extra."""
    try:
        yield
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0][:60]
        raise InputError(f"{missing} is needed and not installed: pip install 'benchback[{extra}]'") from None


def check(out: Path) -> None:
    """Refuse a file that could not be written, before anything is played."""
    if out.suffix.lower() not in FORMATS:
        raise InputError(f"--out {out}: videos are {' or '.join(FORMATS)}; choose one by the suffix")
    if out.exists():
        raise InputError(f"{out} exists; choose another --out or remove it")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder; create it, or choose another --out")
    with needed("play"):
        import imageio_ffmpeg  # noqa: F401


@contextlib.contextmanager
def writer(out: Path, frames_per_s: float) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends a frame; `out` appears when the context ends well."""
    draft = out.with_name(f".{out.stem}.partial{out.suffix}")
    processes: list[subprocess.Popen] = []

    def write(image: np.ndarray) -> None:
        if not processes:
            processes.append(_encoder(draft, frames_per_s, *image.shape[:2]))
        pipe = processes[0].stdin
        assert pipe is not None
        pipe.write(np.ascontiguousarray(image, np.uint8).data)

    try:
        yield write
        for process in processes:
            _, said = process.communicate()
            if process.returncode:
                raise OSError(f"{out}: ffmpeg could not write it: {said.decode(errors='replace').strip()[-200:]}")
            draft.replace(out)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        draft.unlink(missing_ok=True)


def _encoder(path: Path, frames_per_s: float, height: int, width: int) -> subprocess.Popen:
    """ffmpeg, reading frames of that size."""
    import imageio_ffmpeg

    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(frames_per_s), "-i", "-"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *given, *FORMATS[path.suffix.lower()], str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
