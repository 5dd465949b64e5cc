"""The coordinator: takes slots from the store, runs each in a process of its own, stores the outcome.

It can be stopped and started again at any point, and several may work on one store. All its state is in the store.
"""

import math
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchback import __version__, envs
from benchback.errors import InputError
from benchback.measure import canary, gate, machine, plan
from benchback.measure.block import BlockJob, attempts_of, measure
from benchback.measure.cost import relay_seconds
from benchback.measure.launch import launcher
from benchback.measure.process import Interrupted, Launch, Tick
from benchback.measure.record import Attempt, Cell, Slot
from benchback.measure.relay import Pace, RelayLaunch, relay_launch
from benchback.measure.stopping import block_seconds, extend_groups, lengthen
from benchback.measure.store import Fenced, Lease, Store, create, open_store
from benchback.measure.study import Study

LEASE_S = 60.0
RENEW_S = 15.0
POLL_S = 0.5

Prove = Callable[[Iterable[str], Mapping[str, Any], Tick], dict[str, str]]


@dataclass
class Hooks:
    """Callbacks of a coordinator, called between runs only, and the functions it measures with."""

    asked_to_stop: Callable[[], bool] = lambda: False
    started: Callable[[Slot, Cell], None] = lambda slot, cell: None
    finished: Callable[[Slot, Cell, Attempt], None] = lambda slot, cell, attempt: None
    log: Callable[[str], None] = lambda line: None
    launch: Launch | None = None
    """Runs a cell; None: the launcher of its kind, in processes of its own."""
    relay: RelayLaunch | None = None
    """Runs the cells of a block as a relay; None: in processes of its own, or with `launch` if that is given."""
    progress: Callable[[str], None] = lambda text: None
    """Called while a block lasts, between turns."""
    prove: Prove | None = field(default=gate.verdicts)
    """Whether programs compute the same: proof (see `Cell.proof`) -> `pass` or why not. None: it is not checked."""
    sample: Callable[[], dict[str, float]] = machine.sample
    """Counters of the machine; noise is computed from two samples."""
    canary: Callable[[], dict[str, float]] | None = canary.run
    """Times the machine around a block. None: no canary is run."""
    clock: Callable[[], float] = time.monotonic
    """Seconds, by which the budget is used up."""


def open_campaign(
    path: Path,
    study: Study,
    *,
    seed: int | None = None,
    note: str = "",
    new_stratum: bool = False,
    fingerprint: Mapping[str, Any] | None = None,
    many: bool = False,
) -> Store:
    """The store of this study at `path`, created with its whole schedule if missing; a mismatch is refused.

    `fingerprint` is of the machine that will run it, by default this one. The default seed is 0, or that of
    the existing campaign. A note that differs from the existing campaign's is kept as an event. With `many` machines
    each is checked, and its stratum found or opened, when it joins.
    """
    fingerprint = fingerprint or machine.fingerprint()
    if not many:
        check_fit(study, fingerprint)
    if not path.exists():
        cells, slots = plan.schedule(study, seed or 0)
        campaign = {"study": study.to_dict(), "study_id": study.id, "seed": seed or 0, "note": note}
        campaign |= {"comparable": study.comparable, "benchback": __version__, "fingerprint": fingerprint}
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return create(path, campaign, cells, slots)
        except InputError:
            if not path.exists():
                raise
            # Another coordinator has created it meanwhile: join it.
    store = open_store(path)
    try:
        _check_campaign(store, study, seed)
        if not many:
            _check_machine(store, study, fingerprint, new_stratum)
        if note and note != store.campaign()["note"]:
            store.add_event("note", note)
    except BaseException:
        store.close()
        raise
    return store


def _check_campaign(store: Store, study: Study, seed: int | None) -> None:
    """Refuse a store of another study or seed than the requested one."""
    campaign = store.campaign()
    if campaign["study_id"] != study.id:
        raise InputError(
            f"{store.path} holds the study {campaign['study']['name']} with other configurations; "
            "choose another --store, or run it as it was begun"
        )
    if seed is not None and seed != campaign["seed"]:
        raise InputError(
            f"{store.path} was begun with seed {campaign['seed']}, not {seed}; leave out --seed, "
            "or choose another --store"
        )


def check_fit(study: Study, fingerprint: Mapping[str, Any]) -> None:
    """Refuse a study that this machine cannot run, before any run starts."""
    machine.processors(max(cell.threads for cell in study.cells))
    if any(cell.device == "gpu" for cell in study.cells) and not fingerprint.get("gpu"):
        raise InputError(f"study {study.name} has device=gpu and no NVIDIA GPU answers here; use device=cpu")
    for id in dict.fromkeys(cell.run["env"] for cell in study.cells if cell.kind == "training"):
        envs.check_installed(id)


def _check_machine(store: Store, study: Study, fingerprint: Mapping[str, Any], new_stratum: bool) -> None:
    changed = machine.difference(store.strata()[-1], fingerprint)
    if changed and not new_stratum:
        raise InputError(
            f"the machine is not as it was when {store.path} was last worked on: {'; '.join(changed)}; "
            "restore it, or continue apart from the earlier runs with --new-stratum"
        )
    if changed:
        number = len(store.strata())
        try:
            store.add_stratum(fingerprint, plan.again(study, store.slots(), store.campaign()["seed"], number))
        except ValueError:
            # Another coordinator opened it meanwhile; if it is for this machine, join it.
            if machine.difference(store.strata()[-1], fingerprint):
                raise
        else:
            store.add_event("stratum", {"number": number, "changed": changed})


def work(store: Store, study: Study, hooks: Hooks) -> bool:
    """Run what is open until nothing is; False if asked to stop before. Extends groups that are not precise enough."""
    stratum, deadline = len(store.strata()) - 1, hooks.clock() + (study.budget_s or math.inf)
    lengthen(store, study, stratum)
    # Leases under our name belong to a dead process whose pid we reuse.
    store.forget(lambda name: name == owner() or owner_is_gone(name))
    try:
        prove(store, hooks)
    except Interrupted:
        return False
    with ExitStack() as stack:
        launch = hooks.launch or stack.enter_context(launcher())
        relay = hooks.relay
        if relay is None and hooks.launch is None and study.relays:
            relay = stack.enter_context(relay_launch(study.keep_caches))
        return Coordinator(store, study, hooks, launch, relay, stratum, store.cells(), deadline).work()


def prove(store: Store, hooks: Hooks) -> None:
    """Store the parity verdict of every program of the study for the present code; failures are measured again."""
    if hooks.prove is None:
        return
    fingerprint = store.strata()[-1]
    proofs = {cell.proof for cell in store.cells().values() if cell.kind == "training"}
    known = [event.detail for event in store.events() if event.kind == "parity"]
    same = bool(known) and known[-1]["code"] == fingerprint.get("code")
    if same and all(known[-1]["verdicts"].get(proof) == "pass" for proof in proofs):
        return
    hooks.log("proving that the programs compute the same")
    found = hooks.prove(proofs, fingerprint, lambda: not hooks.asked_to_stop())
    store.add_event("parity", {"code": fingerprint.get("code"), "levels": gate.LEVELS, "verdicts": found})


@dataclass
class Coordinator:
    """Runs one slot after another, or one block as a relay after another, with a canary between blocks."""

    store: Store
    study: Study
    hooks: Hooks
    launch: Launch
    relay: RelayLaunch | None
    """None: whole runs."""
    stratum: int
    cells: Mapping[str, Cell]
    deadline: float = math.inf
    """On the clock of the hooks: when the budget is used up."""
    block: tuple[str, int] | None = None

    def work(self) -> bool:
        """Run what is open until nothing is; False if asked to stop before."""
        while not self.hooks.asked_to_stop():
            left_s = self.deadline - self.hooks.clock()
            leases = self.store.lease_together(owner(), LEASE_S, self.stratum, self.block_of)
            if self.seconds_of(leases) > left_s or left_s <= 0:
                self.store.release(*leases)
                self.hooks.log("the time is used up")
                self.close_block()
                return True
            if leases:
                self.fill(leases)
            elif self.store.progress(self.stratum).running:
                time.sleep(POLL_S)  # another coordinator holds the last slots; if it dies, they become ours
                self.store.forget(owner_is_gone)
            elif not extend_groups(
                self.store, self.study, self.stratum, self.hooks.log, left_s if self.study.budget_s else None
            ):
                self.close_block()
                return True
        return False

    def seconds_of(self, leases: Sequence[Lease]) -> float:
        """Seconds that these slots will take; see `expected_seconds`. 0 where that is not needed."""
        if not leases or math.isinf(self.deadline):
            return 0.0
        slots = [lease.slot for lease in leases]
        return expected_seconds(self.store, self.study, self.cells, slots)

    def block_of(self, slot: Slot) -> tuple[str, int] | str:
        """Slots with the same value are run together: those of a block as a relay, whole runs by themselves."""
        return slot.id if self.relay is None else (self.cells[slot.cell].group, slot.block)

    def fill(self, leases: Sequence[Lease]) -> None:
        """Run the slots and store their attempts; after a lost lease or an interruption nothing is stored."""
        slot = leases[0].slot
        block = self.cells[slot.cell].group, slot.block
        if block != self.block:
            self.close_block()
            self.run_canary(block, "before")
            self.block = block
        finished: list[tuple[Lease, Attempt]] = []
        try:
            if not self.hooks.asked_to_stop():
                finished = self.attempts(leases)
                done = {lease.fence for lease, _ in finished}
                # Slots without an attempt run again, together: nobody may lease one before the others are free.
                self.store.finish_together(finished, [lease for lease in leases if lease.fence not in done])
        except Fenced as lost:
            self.store.add_event("fenced", str(lost))
        except Interrupted:
            pass
        else:
            for lease, attempt in finished:
                self.hooks.finished(lease.slot, self.cells[lease.slot.cell], attempt)
        self.store.release(*leases)

    def attempts(self, leases: Sequence[Lease]) -> list[tuple[Lease, Attempt]]:
        """The attempts at these slots, with the machine noise during them; see `attempts_of`."""
        renewal = Renewal(self.store, leases, self.hooks.asked_to_stop)
        for lease in leases:
            self.hooks.started(lease.slot, self.cells[lease.slot.cell])
        job = job_of(self.study, self.cells, [lease.slot for lease in leases])
        measured = measure(job, self.launch, self.relay, renewal.tick, self.hooks.progress, self.hooks.sample)
        return attempts_of(leases, measured, self.study.rerun_noisy and self.relay is None)

    def close_block(self) -> None:
        """Run the canary after the last block worked on, if any."""
        if self.block is not None and not self.hooks.asked_to_stop():
            self.run_canary(self.block, "after")
        self.block = None

    def run_canary(self, block: tuple[str, int], when: str) -> None:
        """Run the canary and store its times, or the event that it failed."""
        if self.hooks.canary is None:
            return
        group, number = block
        place = {"group": group, "block": number, "stratum": self.stratum, "when": when}
        try:
            self.store.add_canary(place | self.hooks.canary())
        except subprocess.CalledProcessError as error:
            self.store.add_event("canary", place | {"failed": str(error)})


def expected_seconds(store: Store, study: Study, cells: Mapping[str, Cell], slots: Sequence[Slot]) -> float:
    """Seconds that these slots will take, by earlier blocks of their group; 0 where that is not known.

    Those that the study wants last are begun only if they fit, by a rough model if need be.
    """
    members = [cells[slot.cell] for slot in slots]
    known = block_seconds(store, study, slots[0].stratum).get(members[0].group)
    if known is None and members[0].group in study.last:
        return sum(relay_seconds(cell, study, len(members), slots[0].block) for cell in members)
    return known or 0.0


def job_of(study: Study, cells: Mapping[str, Cell], slots: Sequence[Slot]) -> BlockJob:
    """The slots of a block as a machine is given them; `cells` are those of the campaign, in order."""
    members = tuple(cells[slot.cell] for slot in slots)
    # Where a relay runs in pairs, all run with the same one in every block: the study's first.
    ours = {cell.id for cell in members}
    reference = next(cell for id, cell in cells.items() if id in ours)
    return BlockJob(members, slots[0].seed, study.timeout_s, Pace(study.turn_s, study.relay_s), reference)


@dataclass
class Renewal:
    """Keeps leases alive while their runs last."""

    store: Store
    leases: Sequence[Lease]
    asked_to_stop: Callable[[], bool]
    renewed_s: float = field(default_factory=time.monotonic)

    def tick(self) -> bool:
        """Renew the leases when due; False when the user wants to stop."""
        if time.monotonic() - self.renewed_s > RENEW_S:
            for lease in self.leases:
                self.store.renew(lease, LEASE_S)
            self.renewed_s = time.monotonic()
        return not self.asked_to_stop()


def owner() -> str:
    """Name of this process, on this machine, as the owner of a lease."""
    return f"{socket.gethostname()}:{os.getpid()}"


def owner_is_gone(name: str) -> bool:
    """Whether the owner is a process of this machine that no longer exists."""
    machine_name, _, process = name.rpartition(":")
    if machine_name != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError, OverflowError):
        return False
    return False
