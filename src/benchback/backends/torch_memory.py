"""Memory of PyTorch on a CPU, which comes from the C library's malloc."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
"""What does the same for a process that is started with it."""


def keep_freed_memory() -> None:
    """Let glibc keep memory that was freed, up to 1 GiB; nothing elsewhere.

    By default it gives the end of the heap back to the system as soon as some hundred kilobytes there are free, and a
    gradient step that needs them again gets them page by page. Whether that happens depends on what lies at the end
    of the heap, which no program decides: the same update with a GRU took 110 ms in one process and 225 in another.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, int(ENVIRONMENT["MALLOC_TRIM_THRESHOLD_"]))
        # Setting one ends glibc's own adjustment of both. 32 MiB is the most it takes.
        mallopt(MMAP_THRESHOLD, int(ENVIRONMENT["MALLOC_MMAP_THRESHOLD_"]))
