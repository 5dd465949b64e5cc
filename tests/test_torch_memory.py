"""PyTorch keeps memory that its programs free, so that no process of many gets it page by page at every call."""

import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource, sys

if sys.argv[1] == "with benchback":
    import benchback.backends.pytorch

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


def use_and_free():
    blocks = [libc.malloc(2**22) for _ in range(16)]
    for block in blocks:
        libc.memset(block, 1, 2**22)
    for block in blocks:
        libc.free(block)


for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use_and_free()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""
PAGES = 16 * 2**22 // 4096


def faults(side: str) -> int:
    """Pages that the system had to give in the last of eight rounds of the same work."""
    done = subprocess.run([sys.executable, "-c", FAULTS, side], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="about glibc")
def test_freed_memory_stays_with_the_process() -> None:
    assert faults("as glibc does by itself") > PAGES // 2
    assert faults("with benchback") < PAGES // 100
