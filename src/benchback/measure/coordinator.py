"""The coordinator: takes slots from the store, runs each in a process of its own, stores the outcome.

It can be stopped and started again at any point, and several may work on one store. All its state is in the store.
"""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchback import __version__, envs
from benchback.errors import InputError
from benchback.measure import gate, machine, plan
from benchback.measure.launch import launcher
from benchback.measure.process import Interrupted, Launch, Tick
from benchback.measure.record import Attempt, Cell, Record, Slot
from benchback.measure.results import block_times, complete
from benchback.measure.store import Fenced, Lease, Store, create, open_store
from benchback.measure.study import Study

LEASE_S = 60.0
RENEW_S = 15.0
BLOCKS_AT_ONCE = 2
"""Blocks added to a group that is not precise enough: an even number keeps orders balanced with their reverse."""
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
    prove: Prove | None = field(default=gate.verdicts)
    """Whether programs compute the same: proof (see `Cell.proof`) -> `pass` or why not. None: it is not checked."""
    sample: Callable[[], dict[str, float]] = machine.sample
    """Counters of the machine; noise is computed from two samples."""
    canary: Callable[[], dict[str, float]] | None = machine.canary
    """Times the machine around a block. None: no canary is run."""


def open_campaign(
    path: Path,
    study: Study,
    *,
    seed: int | None = None,
    note: str = "",
    new_stratum: bool = False,
    fingerprint: Mapping[str, Any] | None = None,
) -> Store:
    """The store of this study at `path`, created with its whole schedule if missing; a mismatch is refused.

    `fingerprint` is of the machine that will run it, by default this one. The default seed is 0, or that of
    the existing campaign. A note that differs from the existing campaign's is kept as an event.
    """
    fingerprint = fingerprint or machine.fingerprint()
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
    stratum = len(store.strata()) - 1
    lengthen(store, study, stratum)
    # Leases under our name belong to a dead process whose pid we reuse.
    store.forget(lambda name: name == owner() or owner_is_gone(name))
    try:
        prove(store, hooks)
    except Interrupted:
        return False
    with nullcontext(hooks.launch) if hooks.launch else launcher() as launch:
        return Coordinator(store, study, hooks, launch, stratum, store.cells()).work()


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
    """Runs one slot after another, with a canary between blocks."""

    store: Store
    study: Study
    hooks: Hooks
    launch: Launch
    stratum: int
    cells: Mapping[str, Cell]
    block: tuple[str, int] | None = None

    def work(self) -> bool:
        """Run what is open until nothing is; False if asked to stop before."""
        while not self.hooks.asked_to_stop():
            lease = self.store.lease(owner(), LEASE_S, self.stratum)
            if lease is not None:
                self.fill(lease)
            elif self.store.progress(self.stratum).running:
                time.sleep(POLL_S)  # another coordinator holds the last slots; if it dies, they become ours
                self.store.forget(owner_is_gone)
            elif not extend_groups(self.store, self.study, self.stratum, self.hooks):
                self.close_block()
                return True
        return False

    def fill(self, lease: Lease) -> None:
        """Run the slot and store the attempt; after a lost lease or an interruption nothing is stored."""
        cell = self.cells[lease.slot.cell]
        block = cell.group, lease.slot.block
        if block != self.block:
            self.close_block()
            self.run_canary(block, "before")
            self.block = block
        if self.hooks.asked_to_stop():
            return self.store.release(lease)
        self.hooks.started(lease.slot, cell)
        try:
            attempt = self.attempt(lease, cell)
            self.store.finish(lease, attempt)
        except Fenced as lost:
            self.store.add_event("fenced", str(lost))
        except Interrupted:
            self.store.release(lease)
        else:
            self.hooks.finished(lease.slot, cell, attempt)

    def attempt(self, lease: Lease, cell: Cell) -> Attempt:
        """One run, with the machine noise during it."""
        started_at, before = datetime.now(UTC).isoformat(timespec="milliseconds"), self.hooks.sample()
        renewal = Renewal(self.store, lease, self.hooks.asked_to_stop)
        ended = self.launch(cell, lease.slot.seed, self.study.timeout_s, renewal.tick)
        noise = machine.between(before, self.hooks.sample())
        tags = list(ended.tags)
        if machine.violations(noise):
            # Both tags are kept; only `noise` makes the slot run again.
            tags.append("noise" if self.study.rerun_noisy else "noisy")
        record = Record.from_dict(ended.messages[0]["record"]) if ended.outcome == "ok" else None
        return Attempt(
            slot=lease.slot.id,
            number=lease.number,
            outcome=ended.outcome,
            started_at=started_at,
            duration_s=ended.duration_s,
            detail="; ".join(filter(None, (ended.detail, *machine.violations(noise)))),
            log=ended.log,
            tags=tuple(tags),
            noise=noise,
            record=record,
        )

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


@dataclass
class Renewal:
    """Keeps a lease alive while its run lasts."""

    store: Store
    lease: Lease
    asked_to_stop: Callable[[], bool]
    renewed_s: float = field(default_factory=time.monotonic)

    def tick(self) -> bool:
        """Renew the lease when due; False when the user wants to stop."""
        if time.monotonic() - self.renewed_s > RENEW_S:
            self.store.renew(self.lease, LEASE_S)
            self.renewed_s = time.monotonic()
        return not self.asked_to_stop()


def lengthen(store: Store, study: Study, stratum: int) -> None:
    """Append the blocks that the study asks for now beyond those it was begun with."""
    if study.order != "protocol":
        return
    cells, slots, seed = list(store.cells().values()), store.slots(), store.campaign()["seed"]
    added: list[Slot] = []
    for group in dict.fromkeys(cell.group for cell in cells):
        more = study.min_blocks - blocks_of(group, cells, slots, stratum)
        added += plan.extend(cells, [*slots, *added], group, more, seed, stratum)
    with suppress(ValueError):  # another coordinator was faster; what it added will be found open
        store.add_slots(added)


def blocks_of(group: str, cells: Iterable[Cell], slots: Iterable[Slot], stratum: int) -> int:
    """How many blocks of a group are scheduled in a stratum."""
    members = {cell.id for cell in cells if cell.group == group}
    return 1 + max((slot.block for slot in slots if slot.cell in members and slot.stratum == stratum), default=-1)


def extend_groups(store: Store, study: Study, stratum: int, hooks: Hooks) -> bool:
    """Append blocks to every group whose ratios are not known well enough; whether there is more to run."""
    if study.order != "protocol" or study.max_blocks == study.min_blocks:
        return False
    cells, slots = store.cells(), store.slots()
    counts = store.progress(stratum)
    if counts.open or counts.running:
        return True  # another coordinator has extended them meanwhile: run those blocks first
    times, seed = block_times(store, stratum), store.campaign()["seed"]
    added: list[Slot] = []
    extended = []
    for group in dict.fromkeys(cell.group for cell in cells.values()):
        members = [cell.id for cell in cells.values() if cell.group == group]
        wanted = min(BLOCKS_AT_ONCE, study.max_blocks - blocks_of(group, cells.values(), slots, stratum))
        pairs = plan.undecided(complete(times, members), study.precision)
        if wanted > 0 and pairs:
            added += plan.extend(list(cells.values()), [*slots, *added], group, wanted, seed, stratum)
            extended.append({"group": group, "blocks": wanted, "undecided": len(pairs)})
    if not added:
        return False
    with suppress(ValueError):  # another coordinator was faster; what it added will be found open
        store.add_slots(added)
        for what in extended:
            store.add_event("extended", what)
            hooks.log(f"{what['undecided']} comparisons are not precise enough: {what['blocks']} more blocks")
    return True


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
