"""The machine: its fingerprint, its noise read from made-up counters, the canary, and how workers are confined."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchback.errors import InputError
from benchback.measure import canary, machine

STAT = "cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


class Machine:
    """A /proc and a /sys of our own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setattr(machine, "PROC", folder / "proc")
        monkeypatch.setattr(machine, "SYS", folder / "sys")
        monkeypatch.setattr(machine, "_own_seconds", lambda: 0.0)
        monkeypatch.setattr(machine, "_gpu", lambda query: [])

    def write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def fake_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def sampled(time_s: float, **counters: float) -> dict[str, float]:
    return {"time_s": time_s, "own_s": 0.0} | counters


def test_fingerprint_is_the_same_twice_and_survives_json() -> None:
    found = machine.fingerprint()
    assert machine.difference(found, json.loads(json.dumps(machine.fingerprint()))) == []
    assert found["cpus"] >= 1
    assert found["memory_bytes"] > 1 << 28
    assert {"python", "system", "code", "version jax", "version torch", "version benchback"} <= set(found)
    assert all(isinstance(x, str | int | float | bool) for x in found.values())


def test_fingerprint_of_a_machine_that_tells_nothing(fake_machine: Machine) -> None:
    found = machine.fingerprint()
    assert not {"gpu", "governor", "cpu_flags", "cpu_quota", "memory_limit_bytes"} & set(found)
    assert found["cpu"]


def test_difference_reads_like_a_diff() -> None:
    before = {"version torch": "2.13.0", "cpus": 2, "governor": "performance", "code": "a"}
    after = {"version torch": "2.12.0", "cpus": 2, "gpu": "RTX 2080", "code": "a"}
    assert machine.difference(before, after) == [
        "governor: performance -> none",
        "gpu: none -> RTX 2080",
        "version torch: 2.13.0 -> 2.12.0",
    ]


def test_a_commit_matters_only_if_it_changed_the_code() -> None:
    assert machine.difference({"code": "a", "git_commit": "1"}, {"code": "a", "git_commit": "2"}) == []
    changed = machine.difference({"code": "a", "git_commit": "1"}, {"code": "b", "git_commit": "2"})
    assert changed == ["code: a -> b", "git_commit: 1 -> 2"]
    assert machine.difference({"git_commit": "1"}, {"git_commit": "2"}) == ["git_commit: 1 -> 2"]


def test_code_is_that_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    before = machine.fingerprint()["code"]
    (tmp_path / "a.py").write_text("x = 2\n")
    assert machine.fingerprint()["code"] != before


def test_noise_is_read_from_the_systems_counters(fake_machine: Machine) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    fake_machine.write("proc/self/cgroup", "0::/job\n")

    def moment(user: int, idle: int, steal: int, pressure: int, throttled: int) -> dict[str, float]:
        fake_machine.write("proc/stat", STAT.format(user=user * tick, idle=idle * tick, steal=steal * tick))
        fake_machine.write("proc/pressure/cpu", f"some avg10=1.0 avg60=2.0 avg300=3.0 total={pressure}\nfull total=9\n")
        fake_machine.write("sys/fs/cgroup/job/cpu.stat", f"usage_usec 7\nnr_throttled 2\nthrottled_usec {throttled}\n")
        return machine.sample()

    before = moment(100, 1000, 10, 5_000_000, 1_000_000) | {"time_s": 0.0, "own_s": 50.0}
    after = moment(108, 1011, 11, 6_000_000, 1_500_000) | {"time_s": 10.0, "own_s": 55.0}
    # By hand: 20 s of processor time went by, 1 s of it stolen; of 8 s busy 5 s were ours.
    assert machine.between(before, after) == pytest.approx(
        {"steal": 0.05, "other_load": 0.3, "pressure": 0.1, "throttled": 0.05}
    )


def test_waiting_for_the_disk_is_not_work(fake_machine: Machine) -> None:
    tick = os.sysconf("SC_CLK_TCK")

    def moment(*seconds: int) -> dict[str, float]:
        fake_machine.write("proc/stat", " ".join(map(str, ("cpu ", *(x * tick for x in seconds), 0, 0))) + "\n")
        return machine.sample()

    # user, nice, system, idle, wait, irq, soft, steal
    before = moment(10, 20, 30, 40, 50, 60, 70, 80) | {"time_s": 0.0, "own_s": 0.0}
    after = moment(11, 22, 33, 44, 150, 66, 77, 80) | {"time_s": 10.0, "own_s": 0.0}
    assert machine.between(before, after)["other_load"] == pytest.approx((1 + 2 + 3 + 6 + 7) / 10)
    assert after["cpu_s"] - before["cpu_s"] == pytest.approx(1 + 2 + 3 + 4 + 100 + 6 + 7)


@pytest.mark.parametrize(
    ("groups", "file", "line"),
    [
        ("0::/\n", "cpu.stat", "throttled_usec 2000000"),
        ("0::/host/name\n", "cpu.stat", "throttled_usec 2000000"),
        ("3:cpu,cpuacct:/a\n0::/\n", "cpu,cpuacct/a/cpu.stat", "throttled_time 2000000000"),
        ("3:cpu:/a\n", "cpu/a/cpu.stat", ""),
        ("3:cpu:/a\n", "cpu/a/cpu.stat", "throttled_time 2000000000"),
        ("3:cpu:/host/name\n", "cpu/cpu.stat", "throttled_time 2000000000"),
    ],
)
def test_throttling_of_either_version_of_cgroups(fake_machine: Machine, groups: str, file: str, line: str) -> None:
    fake_machine.write("proc/self/cgroup", groups)
    fake_machine.write(f"sys/fs/cgroup/{file}", f"nr_periods 3\n{line}\n")
    assert machine.sample().get("throttled_s") == (2.0 if line else None)


def test_a_machine_that_tells_nothing_has_fewer_keys(fake_machine: Machine) -> None:
    before, after = machine.sample(), machine.sample()
    assert set(before) == {"time_s", "own_s"}
    assert machine.between(before, after) == {}
    assert machine.violations({}) == ()
    assert machine.out_of_memory_kills() == 0


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu 1 2\n", "intr 1 2 3 4 5 6 7 8 9\n"])
def test_counters_that_make_no_sense_are_left_out(fake_machine: Machine, text: str) -> None:
    fake_machine.write("proc/stat", text)
    fake_machine.write("proc/pressure/cpu", "some avg10=0.00\n")
    assert set(machine.sample()) == {"time_s", "own_s"}


def test_noise_of_no_time_is_nothing() -> None:
    assert machine.between(sampled(1.0, busy_s=1.0), sampled(1.0, busy_s=2.0)) == {}


def test_violations_name_what_was_too_much() -> None:
    noise = {"steal": 0.05, "pressure": 0.1, "throttled": 0.0, "other_load": 0.3}
    assert machine.violations(noise) == ("steal 0.05 above 0.01", "other_load 0.3 above 0.1")
    assert machine.violations(noise, {"pressure": 0.05}) == ("pressure 0.1 above 0.05",)
    assert machine.violations(dict.fromkeys(machine.LIMITS, 0.0)) == ()


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["0x0000000000000000"], 0.0),
        (["0x0000000000000001"], 0.0),
        (["0x0000000000000001", "0x0000000000000020"], 1.0),
        (["0x0000000000000004"], 1.0),
        (["[N/A]"], 0.0),
    ],
)
def test_gpus_held_back_by_heat_or_power_are_noise(
    fake_machine: Machine, monkeypatch: pytest.MonkeyPatch, reasons: list[str], expected: float
) -> None:
    monkeypatch.setattr(machine, "_gpu", lambda query: reasons)
    after = machine.sample() | {"time_s": 1e12}
    noise = machine.between(after | {"time_s": 0.0, "gpu_throttled": 0.0}, after)
    assert noise["gpu_throttled"] == expected
    assert bool(machine.violations(noise)) == bool(expected)


def test_a_command_that_is_missing_or_fails_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine._gpu("name") == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho no driver\nexit 9\n")
    program.chmod(0o755)
    assert machine._gpu("name") == []
    program.write_text("#!/bin/sh\necho RTX 2080\n")
    assert machine._gpu("name") == ["RTX 2080"]


def test_work_of_ended_children_is_ours() -> None:
    before = machine._own_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    assert machine._own_seconds() - before > 0.05


def test_kills_for_memory_are_counted_in_our_group(fake_machine: Machine) -> None:
    fake_machine.write("proc/vmstat", "nr_free_pages 3\noom_kill 7\n")
    assert machine.out_of_memory_kills() == 7
    fake_machine.write("proc/self/cgroup", "4:memory:/job\n")
    fake_machine.write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert machine.out_of_memory_kills() == 2
    fake_machine.write("proc/self/cgroup", "0::/job\n")
    fake_machine.write("sys/fs/cgroup/job/memory.events", "low 0\noom 1\noom_kill 1\n")
    assert machine.out_of_memory_kills() == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "1000000"}, {"cpu_quota": 1.5, "memory_limit_bytes": 1_000_000}),
        ({"cpu.max": "max 100000", "memory.max": "max"}, {}),
    ],
)
def test_quotas_are_part_of_the_fingerprint(fake_machine: Machine, files: dict[str, str], expected: dict) -> None:
    fake_machine.write("proc/self/cgroup", "0::/\n")
    for name, text in files.items():
        fake_machine.write(f"sys/fs/cgroup/{name}", text)
    found = machine.fingerprint()
    assert {name: found[name] for name in ("cpu_quota", "memory_limit_bytes") if name in found} == expected


def test_quotas_of_the_first_version_of_cgroups(fake_machine: Machine) -> None:
    fake_machine.write("proc/self/cgroup", "1:cpu:/\n2:memory:/\n")
    fake_machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000")
    fake_machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    fake_machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    found = machine.fingerprint()
    assert found["cpu_quota"] == 0.5
    assert "memory_limit_bytes" not in found


def test_the_canary_measures_processor_and_memory() -> None:
    found = canary.run()
    assert set(found) == {"matmul_s", "memcpy_s"}
    assert all(1e-5 < seconds < 10 for seconds in found.values())


def test_a_worker_sees_allow_listed_variables_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XLA_FLAGS", "PYTHONPATH", "WANDB_API_KEY", "LD_PRELOAD", "TORCH_LOGS"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    found = machine.variables(2, tmp_path, "cpu")
    assert not {"XLA_FLAGS", "PYTHONPATH", "WANDB_API_KEY", "LD_PRELOAD", "TORCH_LOGS"} & set(found)
    assert found["PATH"] == "/bin"
    assert {found[name] for name in machine.THREADS} == {"2"}
    assert (found["JAX_PLATFORMS"], found["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")


def test_every_cache_of_a_worker_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    caches = ("JAX_COMPILATION_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR", "XDG_CACHE_HOME")
    for name in caches:
        monkeypatch.setenv(name, "/elsewhere")
    for device in ("cpu", "gpu"):
        found = machine.variables(1, tmp_path, device)
        assert all(Path(found[name]).is_relative_to(tmp_path) for name in caches)
        assert len({found[name] for name in caches}) == len(caches)


def test_a_gpu_worker_may_see_the_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert machine.variables(1, tmp_path, "gpu")["CUDA_VISIBLE_DEVICES"] == "1"
    assert machine.variables(1, tmp_path, "gpu")["JAX_PLATFORMS"] == "cuda,cpu"


def test_processors_are_on_cores_of_their_own(fake_machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two cores of two threads each: 0 and 1, 2 and 3.
    monkeypatch.setattr(machine, "allowed_processors", lambda: [0, 1, 2, 3])
    for number in range(4):
        siblings = "0-1\n" if number < 2 else "2-3\n"
        fake_machine.write(f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", siblings)
    assert machine.processors(1) == (3,)
    assert machine.processors(2) == (1, 3)
    assert machine.processors(3) == (1, 2, 3)
    with pytest.raises(InputError, match="threads=5 but this process may use 4 processors"):
        machine.processors(5)


def test_processors_that_others_keep_busy_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_processors", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(machine, "_text", lambda path: None)
    assert machine.processors(1, busy={}) == machine.processors(1, busy={3: 0.1, 0: 0.0}) == (3,)
    assert machine.processors(1, busy={3: 1.0, 2: 0.9}) == (1,)
    assert machine.processors(2, busy={3: 1.0}) == (1, 2)
    assert machine.processors(2, lane=1, busy={3: 1.0}) == (0, 3)
    assert machine.processors(1, busy=dict.fromkeys(range(4), 1.0)) == (3,), "all are busy"


def test_how_busy_each_processor_is(fake_machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = "cpu 9 9 9 9 9 9 9 9 0 0\ncpu0 {} 0 0 {} 0 0 0 0 0 0\ncpu1 {} 0 0 {} 0 0 0 0 0 0\nintr 5\n"
    fake_machine.write("proc/stat", stat.format(100, 900, 500, 500))
    later = stat.format(120, 900, 505, 515)
    monkeypatch.setattr(machine.time, "sleep", lambda seconds: fake_machine.write("proc/stat", later))
    assert machine.busy_shares() == {0: 1.0, 1: 0.25}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not pin processes")
def test_a_pinned_process_stays_where_it_is_put() -> None:
    code = "import os, sys; sys.stdin.read(); print(sorted(os.sched_getaffinity(0)))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        chosen = machine.pin(process.pid, 1)
        output, _ = process.communicate()
    assert json.loads(output) == list(chosen)
    assert machine.pin(process.pid, 1) == ()
