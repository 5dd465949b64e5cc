"""How a process ended, from its exit code and the end of its log."""

import signal

from benchback.measure.record import Outcome

OUT_OF_MEMORY = ("MemoryError", "RESOURCE_EXHAUSTED", "OutOfMemoryError", "std::bad_alloc", "Cannot allocate memory")
FRAMES_NOTE = "--------------------\nFor simplicity, JAX has removed its internal frames"
"""Start of the lines that JAX prints after an exception's message."""
LAST_LINES = 5


def classify(code: int, timed_out: bool, garbled: str, log: str, killed_for_memory: bool) -> tuple[Outcome, str]:
    """The outcome of a process, and one line that says why."""
    lines = [line.strip()[:300] for line in log.partition(FRAMES_NOTE)[0].splitlines() if line.strip()]
    memory_errors = [line for line in lines[-LAST_LINES:] if any(word in line for word in OUT_OF_MEMORY)]
    if timed_out:
        return "timeout", ""
    if garbled:
        return "garbled", garbled
    if killed_for_memory and code:
        return "memory", "killed by the system for want of memory"
    if code and memory_errors:
        return "memory", memory_errors[-1]
    if code < 0:
        return "signal", f"ended by {signal_name(-code)}"
    if code:
        return "error", f"exit code {code}: {lines[-1] if lines else 'no message'}"
    return "ok", ""


def signal_name(number: int) -> str:
    """SIGKILL, or `signal 40` where a number has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
