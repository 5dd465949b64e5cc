"""The run to profile, and for how many iterations."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

from benchback.errors import InputError
from benchback.training.run import Run
from benchback.training.run_dir import default_path


@dataclass(frozen=True)
class ProfilePlan:
    """The run to profile, and for how many iterations."""

    run: Run
    warmup: int = 3
    """Iterations before anything is measured."""
    iterations: int = 10
    """Steady iterations of every measurement."""
    compare: str | None = None
    """Backend whose updates to time beside the run's own."""

    def __post_init__(self) -> None:
        for name in ("warmup", "iterations"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1")
        if self.compare == self.run.backend:
            raise InputError(f"compare={self.compare} is the backend of the run itself; choose another")
        if self.compare is not None:
            self.rival()

    def rival(self) -> Run:
        """The run in the compared backend, in that backend's best mode."""
        assert self.compare is not None
        return replace(self.run, backend=self.compare, mode="best", unit="phase", gradients="framework")


def lasting(plan: ProfilePlan) -> Run:
    """The run, long enough that nothing measured comes after its end: annealed rates would become negative."""
    run, calls = plan.run, plan.warmup + 4 * plan.iterations
    if "num_iterations" not in {f.name for f in fields(run.config)}:
        return run
    wanted = max(run.config.num_iterations, calls * run.length)
    wanted += -wanted % run.length
    return replace(run, config=replace(run.config, num_iterations=wanted))


def default_out(run: Run) -> Path:
    """runs/profile-<algorithm>-<backend>-<env>-<mode>-<unit>."""
    path = default_path(run)
    return path.with_name(f"profile-{path.name}".removesuffix(f"-seed{run.seed}"))
