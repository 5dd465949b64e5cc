"""Shape annotations are checked in the tests: the hook must be in place before the package is imported."""

import os
import tempfile

# One thread each: two test processes share two cores, and OpenMP on busy cores can be ten times slower.
for name in ("NPROC", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

# Programs are shared between tests and test processes; a new folder each time keeps runs independent.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="benchback-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# Most of the suite's time is compiling. Without LLVM's optimiser, with XLA's older emitters of fusions, and as one LLVM
# module, a program compiles six times faster and computes the same. Campaigns do not hand this on to their workers.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()

import jaxtyping  # noqa: E402

# Only where there are shapes: elsewhere the checks repeat what pyright proves, and took a quarter of the suite's time.
SHAPED = ("algorithms", "backends", "envs", "math", "population")
jaxtyping.install_import_hook([f"benchback.{room}" for room in SHAPED], "beartype.beartype")

import gc  # noqa: E402
import importlib  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import pytest  # noqa: E402

from benchback.algorithms.ppo.config import Config  # noqa: E402


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was skipped, file by file, with the reason: it names what is missing and the command that gets it."""
    reports = {report.nodeid: report for report in terminalreporter.stats.get("skipped", [])}
    reasons = ((node.partition("::")[0], report.longrepr[2]) for node, report in reports.items())
    groups = Counter((file, reason.removeprefix("Skipped: ")) for file, reason in reasons)
    if groups:
        terminalreporter.section("not run here")
    for (file, reason), count in groups.items():
        terminalreporter.write_line(f"{file}, {'1 test' if count == 1 else f'{count} tests'}: {reason}")


LONGEST = (
    "test_parity",
    "test_report_page",
    "test_vpg",
    "test_td3",
    "test_dqn_parity",
    "test_campaign",
    "test_cli",
    "test_population",
    "test_eject",
    "test_campaign_cli",
    "test_relay_process",
    "test_population_training",
    "test_conformance",
    "test_report",
    "test_probes",
    "test_dqn",
    "test_nnx_modes",
    "test_process",
    "test_mutations",
    "test_relay_campaign",
    "test_laws",
    "test_checkpoint",
    "test_torch_modes",
    "test_plugins",
    "test_continuous",
    "test_recurrent",
    "test_cnn",
    "test_kernel_gradients",
    "test_python_envs",
    "test_contract",
    "test_micro",
    "test_advise",
    "test_plan",
    "test_learning",
)
"""Files that take longest, begun first: the two test processes then end together, each having taken whole files."""


SHAPES_CHECKED = {
    "test_cnn",
    "test_conformance",
    "test_contract",
    "test_draws",
    "test_envs",
    "test_math_protocol",
    "test_maths",
    "test_normalisers",
    "test_population",
    "test_recurrent",
    "test_replay",
    "test_surrogates",
    "test_torch_envs",
    "test_torch_maths",
}
"""Files that run what has shapes; so do the levels of parity. Checking in all the others took two CPU minutes more."""
LEVELS = "test_backend_is_within_tolerance_in_every_quantity"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    checked = item.path.stem in SHAPES_CHECKED or getattr(item, "originalname", None) == LEVELS
    jaxtyping.config.update("jaxtyping_disable", not checked)


def pytest_collection_finish() -> None:
    """Leaves what was imported, a million objects, out of later searches for garbage: 7 % of the suite's time."""
    # Its pytest plugin imports it at the end, and it then looks for referrers, which a frozen heap hides.
    importlib.import_module("hypothesis")
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONGEST)))


@pytest.fixture(autouse=True, scope="module")
def _forgetting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drops what a file has compiled when it is done: a process that keeps thousands of programs runs out of maps."""
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()


TINY = Config(num_envs=4, num_steps=8, num_minibatches=2, num_epochs=2, num_iterations=6, hidden_sizes=(8, 8))
"""A PPO whose programs compile in a second or two."""


@pytest.fixture(scope="session")
def tiny() -> Config:
    return TINY


@pytest.fixture
def benchback(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Runs the command line in a process of its own, in an empty folder."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "benchback.cli", *arguments],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=1800,
        )

    return run
