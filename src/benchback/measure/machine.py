"""The machine: its fingerprint, its noise during a run, and how a worker is pinned and isolated on it.

Facts that a system does not report are left out rather than guessed. Imports no framework.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from benchback.errors import InputError
from benchback.plugins import imports
from benchback.registry import ALGORITHMS, BACKENDS, NETWORKS

PROC, SYS = Path("/proc"), Path("/sys")
PACKAGE = Path(__file__).parent.parent
PACKAGES = ("benchback", "jax", "jaxlib", "optax", "numpy")
"""Packages on which numbers and times depend, beside those of the backends and environments."""
SUITES = ("gymnax", "brax", "navix", "playground", "mujoco", "mujoco-mjx")
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH", "CC", "CXX")
INHERITED_GPU = ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "NVIDIA_VISIBLE_DEVICES")
THREADS = (
    "NPROC",  # XLA's CPU client sizes its thread pool by this
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TORCHINDUCTOR_COMPILE_THREADS",
)
SHIPPED = "BENCHBACK_SHIPPED"
"""Variable of a process whose copy of this package was sent to it: the folder in which its workers find it."""
UNLIMITED_BYTES = 1 << 60
COMMAND_S = 10.0
"""Time limit of a command that describes the machine."""


def fingerprint() -> dict[str, Any]:
    """Facts that must not change during a campaign: hardware, system, limits, versions, code. Flat and JSON-able."""
    found: dict[str, Any] = {
        "cpu": _cpu_field("model name") or platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "cpus_allowed": len(allowed_processors()),
        "cpu_flags": _digest((_cpu_field("flags") or "").encode()) if _cpu_field("flags") else None,
        "governor": _text(SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "container": _container(),
        "gpu": "; ".join(_gpu("name,driver_version")) or None,
        "code": _code(),
        "git_commit": _output("git", "-C", str(PACKAGE), "rev-parse", "HEAD"),
        **_limits(),
        **{f"version {name}": _version(name) for name in (*PACKAGES, *_of_backends(), *SUITES)},
        **_plugins(),
    }
    return {name: x for name, x in found.items() if x is not None}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Changes, a line each; none for equal machines. A commit that leaves the code unchanged does not count."""
    same_code = before.get("code") == after.get("code") is not None
    return [
        f"{name}: {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name) and not (name == "git_commit" and same_code)
    ]


def sample() -> dict[str, float]:
    """Counters of the machine now; two samples give the noise in between. Counters the system lacks are left out."""
    found = {"time_s": time.monotonic(), "own_s": _own_seconds()} | _processor_seconds() | _throttling()
    pressure = _text(PROC / "pressure/cpu")
    if pressure and "total=" in pressure:
        found["pressure_s"] = int(pressure.splitlines()[0].rpartition("total=")[2]) / 1e6
    reasons = _gpu("clocks_throttle_reasons.active")
    if reasons:
        found["gpu_throttled"] = float(any(_is_harmful(reason) for reason in reasons))
    return found


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Noise from one sample to a later one.

    steal: share of processor time that the hypervisor took; pressure: share of time in which some task waited for a
    processor; throttled: share of time in which a quota stopped this group of processes; other_load: processors busy
    with processes that are not ours; gpu_throttled: 1 if a GPU was held back by heat or power at either end.
    """
    change = {name: max(0.0, after[name] - before[name]) for name in before if name in after}
    elapsed_s = change.pop("time_s")
    found = {}
    if not elapsed_s:
        return found
    if change.get("cpu_s") and "steal_s" in change:
        found["steal"] = change["steal_s"] / change["cpu_s"]
    if "busy_s" in change:
        found["other_load"] = max(0.0, change["busy_s"] - change["own_s"]) / elapsed_s
    for name in ("pressure", "throttled"):
        if f"{name}_s" in change:
            found[name] = change[f"{name}_s"] / elapsed_s
    if "gpu_throttled" in change:
        found["gpu_throttled"] = max(before["gpu_throttled"], after["gpu_throttled"])
    return found


LIMITS = {"steal": 0.01, "pressure": 0.25, "throttled": 0.001, "other_load": 0.1, "gpu_throttled": 0.0}
"""Limits above which a run is tagged and repeated. The pressure limit is loose because the threads of a pinned worker
wait for each other while compiling; other_load is the one that detects another program."""


def violations(noise: Mapping[str, float], limits: Mapping[str, float] = LIMITS) -> tuple[str, ...]:
    """The limits that were exceeded, in words with the value; a value that was not measured is no violation."""
    return tuple(
        f"{name} {noise[name]:.3g} above {limit:.3g}" for name, limit in limits.items() if noise.get(name, 0.0) > limit
    )


def processor_kind() -> str:
    """Digest of the processor's model and the instructions it knows, on which compiled programs depend."""
    known = [_cpu_field(name) or "" for name in ("model name", "flags", "Features")]
    return _digest(*(text.encode() for text in (platform.machine(), *known)))


def variables(threads: int, caches: str | Path, device: str = "cpu") -> dict[str, str]:
    """The whole environment of a worker: few variables inherited, every thread count explicit, all caches private.

    PyTorch keeps compiled programs between processes unless told otherwise and JAX does not: only private, empty
    folders treat them alike.
    """
    names = INHERITED + (INHERITED_GPU if device == "gpu" else ())
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    private = {
        "TMPDIR": str(caches),
        "XDG_CACHE_HOME": f"{caches}/cache",
        "JAX_COMPILATION_CACHE_DIR": f"{caches}/jax",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "TRITON_CACHE_DIR": f"{caches}/triton",
        "CUDA_CACHE_PATH": f"{caches}/cuda",
    }
    # On a GPU JAX would preallocate 75 % of the memory, but PyTorch runs beside it when it steps JAX environments.
    on_gpu = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    on_cpu = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    place = on_gpu if device == "gpu" else on_cpu
    explicit = dict.fromkeys(THREADS, str(threads)) | {"PYTHONDONTWRITEBYTECODE": "1"}
    shipped = {"PYTHONPATH": os.environ[SHIPPED], SHIPPED: os.environ[SHIPPED]} if SHIPPED in os.environ else {}
    return inherited | explicit | private | place | imports.variables() | shipped


def slowdown(threads: int) -> float:
    """How many times as long work of so many threads takes if others stay as busy as they were in the last minute."""
    waiting = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1.0, (waiting + threads) / len(allowed_processors()))


def processors(count: int, lane: int = 0, busy: Mapping[int, float] | None = None) -> tuple[int, ...]:
    """The processors that workers of `count` threads are pinned to: the last ones, on separate cores if possible.

    The first processor is avoided because systems tend to run their own tasks on it, and those that are clearly busier
    than others, where `busy` says so. Workers of other lanes, of which there are `lanes(count)`, share no processor
    with those.
    """
    allowed = allowed_processors()
    if count > len(allowed):
        raise InputError(f"threads={count} but this process may use {len(allowed)} processors; use at most that many")
    first_of_core, siblings, cores = [], [], set()
    for number in reversed(allowed):
        core = _text(SYS / f"devices/system/cpu/cpu{number}/topology/thread_siblings_list") or str(number)
        (siblings if core in cores else first_of_core).append(number)
        cores.add(core)
    free_first = sorted(first_of_core + siblings, key=lambda number: round(2 * (busy or {}).get(number, 0.0)))
    return tuple(sorted(free_first[lane * count :][:count]))


def busy_shares(look_s: float = 0.1) -> dict[int, float]:
    """Share of the next moment in which each processor is busy; to be called while workers rest."""
    before = _each_processor_s()
    time.sleep(look_s)
    after = _each_processor_s()
    changes = {number: (busy - before[number][0], all_ - before[number][1]) for number, (busy, all_) in after.items()}
    return {number: busy_s / all_s for number, (busy_s, all_s) in changes.items() if all_s > 0}


def lanes(count: int) -> int:
    """How many workers of `count` threads have processors of their own."""
    return len(allowed_processors()) // count


def pin(pid: int, count: int, lane: int = 0, busy: Mapping[int, float] | None = None) -> tuple[int, ...]:
    """Pin all threads of a process to `processors(count, lane, busy)`; returns these.

    Returns none if the system cannot or the process has ended.
    """
    if not hasattr(os, "sched_setaffinity"):
        return ()
    chosen = processors(count, lane, busy)
    try:
        for thread in psutil.Process(pid).threads():
            with suppress(ProcessLookupError):  # a thread that has ended meanwhile
                os.sched_setaffinity(thread.id, chosen)
    except psutil.NoSuchProcess:
        return ()
    return chosen


def out_of_memory_kills() -> int:
    """Number of out-of-memory kills, in our control group if known, else on the whole machine."""
    for file in (_cgroup("memory", "memory.events"), _cgroup("memory", "memory.oom_control"), PROC / "vmstat"):
        kills = _counters(file).get("oom_kill")
        if kills is not None:
            return kills
    return 0


def allowed_processors() -> list[int]:
    """Numbers of the processors that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _own_seconds() -> float:
    """Processor time of this process and all its descendants, ended ones included."""
    total = 0.0
    ours = psutil.Process()
    for process in (ours, *ours.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended meanwhile
            continue
        total += times.user + times.system + getattr(times, "children_user", 0) + getattr(times, "children_system", 0)
    return total


def _processor_seconds() -> dict[str, float]:
    """cpu_s, busy_s and steal_s since boot, over all processors."""
    first = (_text(PROC / "stat") or "").partition("\n")[0].split()
    if len(first) < 9 or first[0] != "cpu":
        return {}
    user, nice, system, idle, wait, irq, soft, steal = (int(x) / os.sysconf("SC_CLK_TCK") for x in first[1:9])
    busy = user + nice + system + irq + soft
    return {"cpu_s": busy + idle + wait + steal, "busy_s": busy, "steal_s": steal}


def _each_processor_s() -> dict[int, tuple[float, float]]:
    """Processor -> seconds since boot in which it was busy, and all; empty where the system does not tell."""
    found = {}
    for line in (_text(PROC / "stat") or "").splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(counts) >= 8:
            ticks = [int(x) for x in counts[:8]]
            found[int(name[3:])] = float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))
    return found


def _throttling() -> dict[str, float]:
    """Seconds of throttling by a processor quota; cgroups v2 counts microseconds, v1 nanoseconds."""
    found = _counters(_cgroup("cpu", "cpu.stat"))
    for name, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
        if name in found:
            return {"throttled_s": found[name] * unit}
    return {}


def _limits() -> dict[str, Any]:
    """Quotas on processors and memory, where there are any."""
    found: dict[str, Any] = {}
    quota = (_text(_cgroup("cpu", "cpu.max")) or "").split()
    if not quota:
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota = [text for text in (_text(_cgroup("cpu", file)) for file in files) if text]
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit():
        found["cpu_quota"] = int(quota[0]) / int(quota[1])
    memory = _text(_cgroup("memory", "memory.max")) or _text(_cgroup("memory", "memory.limit_in_bytes")) or ""
    if memory.isdigit() and int(memory) < UNLIMITED_BYTES:
        found["memory_limit_bytes"] = int(memory)
    return found


def _cgroup(controller: str, file: str) -> Path:
    """The file of our control group, of either version; a path that does not exist where there is none."""
    root = SYS / "fs/cgroup"
    for line in (_text(PROC / "self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        # Version 1 mounts a folder per controller or set of them. In a container the group is named as it is
        # outside, and mounted at the top.
        bases = (root / controller, root / controllers) if controllers else (root,)
        for place in (path for base in bases for path in (base / group.lstrip("/"), base)):
            if (place / file).is_file():
                return place / file
    return root / "none"


def _counters(file: Path) -> dict[str, int]:
    """Lines of `name number`."""
    pairs = (line.split() for line in (_text(file) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _cpu_field(name: str) -> str | None:
    for line in (_text(PROC / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _container() -> bool | None:
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return True if any(mark.exists() for mark in marks) else None


def _code() -> str:
    """Digest of this package's source, to tell whether two campaigns ran the same code."""
    return _source(PACKAGE)


def _source(folder: Path) -> str:
    return _digest(*(part for path in sorted(folder.rglob("*.py")) for part in (path.name.encode(), path.read_bytes())))


def _of_backends() -> list[str]:
    return [spec.package for spec in BACKENDS.values()]


def _plugins() -> dict[str, str]:
    """Digest of the source of every plug-in: a changed one must be proven anew."""
    packages = {
        x.package.partition(".")[0] for known in (ALGORITHMS, BACKENDS, NETWORKS) for x in known.plugins.values()
    }
    return {f"version {name} (plug-in)": _source(_folder(name)) for name in sorted(packages)}


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} was registered and cannot be found"
    return Path(next(iter(spec.submodule_search_locations or [str(Path(spec.origin or "").parent)])))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


HARMLESS = 0x1 | 0x2
"""Bits of NVIDIA's throttle reasons that are not throttling: idle, and clocks set by the user."""


def _is_harmful(reason: str) -> bool:
    try:
        return bool(int(reason, 16) & ~HARMLESS)
    except ValueError:  # "[N/A]"
        return False


def _gpu(query: str) -> list[str]:
    """A line per NVIDIA GPU; none without one."""
    found = _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    return [line.strip() for line in (found or "").splitlines() if line.strip()]


def _output(*command: str) -> str | None:
    """Output of a command; None if it is not installed, fails or hangs."""
    if not shutil.which(command[0]):
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None
