"""Cells, slots, records and attempts: plain frozen data, to and from JSON. Imports no framework."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from benchback.envs.ids import split
from benchback.envs.names import CONTINUOUS, GYMNAX

Timing = Literal["async", "sync"]
"""`async` synchronises the ends of a run only, `sync` before and after every rollout and update. They never mix."""
Outcome = Literal["ok", "error", "signal", "timeout", "memory", "garbled", "interrupted"]
"""How an attempt ended: `error` is a non-zero exit, `signal` a crash or kill, `memory` the system's out-of-memory
killer or an allocation failure, `garbled` a worker whose messages could not be parsed, `interrupted` the user."""

Kind = Literal["training", "peer", "operations"]
"""Which program runs a cell: `training` the worker, on a `Run`; `peer` a program of another library in a
virtual environment of its own; `operations` one process per backend, run in turn."""

EXECUTION = ("backend", "mode", "unit", "chunk", "gradients")
"""Fields of a run that say how it is executed, not what is computed: the axes on which runs are compared."""


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """A short hash of the value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One configuration to measure: everything that determines a run except its seed."""

    run: Mapping[str, Any]
    """Every field of a `Run`, flat and resolved, without the seed; for other kinds the input of their program, with
    at least `variant`, the name of the implementation, and `env`."""
    timing: Timing = "async"
    threads: int = 1
    device: str = "cpu"
    members: int = 1
    """Agents trained in one program."""
    vary: Mapping[str, str] = field(default_factory=dict)
    """Float fields in which the agents differ, as a grid: field -> its values; each point has as many seeds as fit."""
    twin: bool = False
    """A second copy of a cell: the A/A pair that every campaign carries."""
    kind: Kind = "training"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; what stores from before had not is left out where it is as it was: kind, members, what varies."""
        # A field that stores once had: without it their cells would have other ids.
        division = "idiomatic" if self.kind == "peer" else "matched"
        unnamed = (("kind", "training"), ("members", 1), ("vary", {}))
        return {name: x for name, x in asdict(self).items() if (name, x) not in unnamed} | {"division": division}

    def identity(self) -> dict[str, Any]:
        """What its id is made of: as `to_dict`, without the field of the usual network, which stores had not yet."""
        run = {name: x for name, x in self.run.items() if (name, x) != ("network", "mlp")}
        return replace(self, run=run).to_dict()

    @cached_property
    def id(self) -> str:
        """Depends on what is measured, not on the machine, the study or the time."""
        return digest(self.identity())

    @cached_property
    def group(self) -> str:
        """Cells of one group do the same work; they are run in blocks and compared with each other.

        Of the environment only the name counts: the suite is part of how the work is done, not of what it is.
        """
        execution = EXECUTION if self.kind == "training" else ("variant",)
        # What is imported is code to find the work by, not the work.
        work = {name: x for name, x in self.run.items() if name not in (*execution, "imports")}
        work = {name: x.rpartition("/")[2] if name == "env" else x for name, x in work.items()}
        return digest(replace(self, run=work, twin=False).identity())

    @property
    def variant(self) -> str:
        """Name of the implementation: `linen/jit/phase`, or a peer's name; the copy of an A/A pair has a prime.

        Reordered gradients are named: `linen/jit/phase/reordered`. An environment that has twins in other suites is
        gymnax's, or else gymnasium's, unless it says otherwise: `pytorch/compile/phase on torch`.
        """
        if self.kind != "training":
            return self.run["variant"]
        where = f" on {self.other_suite}" if self.other_suite else ""
        how = "" if self.gradients == "framework" else f"/{self.gradients}"
        return f"{self.run['backend']}/{self.run['mode']}/{self.unit}{how}{where}" + ("'" if self.twin else "")

    @property
    def proof(self) -> str:
        """What parity is proven for, e.g. `ppo/linen/jit/phase/mlp/float32/framework`; of a chunk any length.

        Another surrogate than the clipped one, and exploration by knots, are named behind it. That of several members,
        whatever their number, ends in `/population`.
        """
        run = self.run
        parts = [run["algorithm"], run["backend"], run["mode"], run["unit"], self.network, run["dtype"], self.gradients]
        usual = {"surrogate": "clip", "exploration": "linear"}
        parts += [run[name] for name, x in usual.items() if run.get(name, x) != x]
        return "/".join([*parts, "population"] if self.members > 1 else parts)

    @property
    def name(self) -> str:
        """The variant, with the number of agents where there are several: `linen/jit/iteration, 64 agents`."""
        return self.variant + (f", {self.members} agents" if self.members > 1 else "")

    @property
    def network(self) -> str:
        """Kind of network; in cells from before there was a choice, multi-layer perceptrons."""
        return self.run.get("network", "mlp")

    @cached_property
    def gradients(self) -> str:
        """How gradients are computed; cells from before there was a choice reordered them where they could."""
        if "gradients" in self.run:
            return self.run["gradients"]
        # The registry imports NumPy, which a coordinator that only opens stores does without.
        from benchback.registry import stored_gradients

        return stored_gradients(self.run)

    @property
    def unit(self) -> str:
        """How much one program covers: `phase`, `iteration` or `chunk(10)`."""
        return f"chunk({self.run['chunk']})" if self.run["unit"] == "chunk" else self.run["unit"]

    @property
    def other_suite(self) -> str:
        """The suite of an environment that has twins in other suites and is not the usual one of them; else empty."""
        suite, name, _ = split(str(self.run.get("env", "gymnax/")))
        away = suite != "gymnax" and (name in (*GYMNAX, *CONTINUOUS) or suite == "envpool")
        return suite if away else ""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Cell":
        """The inverse of `to_dict`."""
        return cls(**{name: x for name, x in fields.items() if name != "division"})


@dataclass(frozen=True)
class Slot:
    """A place in the schedule: one run of one cell."""

    cell: str
    """Id of the cell."""
    block: int
    """Repetition, counted within the cell's group: all variants of a block are run one after another."""
    seed: int
    """Seed of the run: the same for all variants of a block, different between blocks."""
    order: int
    """Position in the whole schedule; the slots of a block are neighbours."""
    stratum: int = 0
    """Machine state it belongs to; results of different strata are never pooled."""

    @property
    def id(self) -> str:
        """`cell/block`, with the stratum where it is not the first."""
        return f"{self.cell}/{self.block}" + (f"@{self.stratum}" if self.stratum else "")


@dataclass(frozen=True)
class Record:
    """The measurements of a worker: every sample, nothing summarised."""

    samples: Mapping[str, list[float | None]]
    """One value per call of the program: total_s, cpu_s, waited_s (for a processor that others had; of one thread),
    rollout_s, update_s (sync only), compiles, host_syncs, transfers, rss_bytes, and the metrics of training such as
    episode_return. None where a value does not exist."""
    marks: Mapping[str, float]
    """Seconds since the process was started: imported, built, initialised, first_call, finished."""
    ledger: Mapping[str, Any]
    """What the run did; must agree between compared runs: parameters, optimiser_steps, env_steps_per_call, dtype,
    matmul_precision, threads, sync points, compiles, versions, device, seed, cache state; of a Python environment, the
    transfers to it and back in a call, and its share of the time."""
    memory: Mapping[str, float]
    """peak_rss_bytes, and peak_device_bytes where the device reports it."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Record":
        """The inverse of `dataclasses.asdict`."""
        return cls(**fields)


@dataclass(frozen=True)
class Attempt:
    """One try at a slot, finished: never changed or deleted once stored."""

    slot: str
    """Id of the slot."""
    number: int
    """0 for the first try."""
    outcome: Outcome
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float
    detail: str = ""
    """One line that says why it is not ok."""
    log: str = ""
    """The last 64 kB of what the worker wrote to stdout and stderr."""
    tags: tuple[str, ...] = ()
    """Irregularities: noise, canary, in-process, ... A tagged attempt is kept, and re-run."""
    noise: Mapping[str, float] = field(default_factory=dict)
    """Machine noise during the run: steal, pressure, throttling, load of other processes."""
    record: Record | None = None
    """Present when the outcome is ok."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Attempt":
        """The inverse of `dataclasses.asdict`."""
        record = fields.get("record")
        tags = tuple(fields.get("tags", ()))
        return cls(**{**fields, "tags": tags, "record": Record.from_dict(record) if record else None})
