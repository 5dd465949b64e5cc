"""Writes frames to a file, mp4 or gif by its suffix; the file appears when it is complete."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchback.errors import InputError, install
from benchback.training.outputs import check_writable

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
        raise InputError(f"{missing} is needed and not installed: {install(extra)}") from None


def check(out: Path) -> None:
    """Refuse a file that could not be written, before anything is played."""
    if out.suffix.lower() not in FORMATS:
        raise InputError(f"--out {out}: videos are {' or '.join(FORMATS)}; choose one by the suffix")
    if out.exists():
        raise InputError(f"{out} exists; choose another --out or remove it")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder; create it, or choose another --out")
    check_writable(out)
    with needed("play"):
        import imageio_ffmpeg  # noqa: F401


@contextlib.contextmanager
def writer(out: Path, frames_per_s: float) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends a frame; `out` appears when the context ends well."""
    draft = out.with_name(f".{out.stem}.{os.getpid()}.partial{out.suffix}")
    processes: list[subprocess.Popen] = []

    def write(image: np.ndarray) -> None:
        if not processes:
            processes.append(_encoder(draft, frames_per_s, *image.shape[:2]))
        pipe = processes[0].stdin
        assert pipe is not None
        try:
            pipe.write(np.ascontiguousarray(image, np.uint8).data)
        except BrokenPipeError:
            # Not our own output, which a reader may close: ffmpeg has given up, and says why.
            raise failure(processes[0], out) from None

    try:
        yield write
        for process in processes:
            fault = failure(process, out)
            if process.returncode:
                raise fault
            draft.replace(out)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        draft.unlink(missing_ok=True)


def failure(process: subprocess.Popen, out: Path) -> OSError:
    """Why ffmpeg ended without a video."""
    try:
        _, said = process.communicate()
    except BrokenPipeError:
        said = process.stderr.read() if process.stderr else b""
        process.wait()
    words = " ".join(said.decode(errors="replace").split())
    full = "No space left on device" in words
    reason = "the disk is full" if full else f"ffmpeg could not write it ({words[-200:] or process.returncode})"
    return OSError(errno.ENOSPC if full else errno.EIO, f"{reason}; free some space, or choose another --out", str(out))


def _encoder(path: Path, frames_per_s: float, height: int, width: int) -> subprocess.Popen:
    """ffmpeg, reading frames of that size."""
    import imageio_ffmpeg

    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(frames_per_s), "-i", "-"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *given, *FORMATS[path.suffix.lower()], str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
