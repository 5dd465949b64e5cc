"""The coordinator: takes slots from the store, has each run in a process of its own, stores what came of it.

It can be stopped and started again at any point, and several may work on one store. What it knows is in the store.
"""

import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchback import __version__, envs
from benchback.errors import InputError
from benchback.measure import gate, machine, plan
from benchback.measure.metrics import stopping_metric
from benchback.measure.policy import kept
from benchback.measure.process import Ended, Interrupted, run_cell
from benchback.measure.record import Attempt, Cell, Record, Slot
from benchback.measure.store import Claim, Fenced, Store, create, open_store
from benchback.measure.study import Study
from benchback.measure.worker import Job, perform

LEASE_S = 60.0
RENEW_S = 15.0
BLOCKS_AT_ONCE = 2
"""Blocks added to a group that is not precise enough: an even number keeps orders balanced with their reverse."""
POLL_S = 0.5

Tick = Callable[[], bool]
"""Called a few times a second by what takes long; False ends it."""
Launch = Callable[[Cell, int, float, Tick], Ended]
Prove = Callable[[Iterable[str], Iterable[str], Mapping[str, Any], Tick], dict[str, str]]


@dataclass
class Watch:
    """What a coordinator tells whoever looks on, between runs only, and what it works with."""

    asked_to_stop: Callable[[], bool] = lambda: False
    started: Callable[[Slot, Cell], None] = lambda slot, cell: None
    finished: Callable[[Slot, Cell, Attempt], None] = lambda slot, cell, attempt: None
    said: Callable[[str], None] = lambda line: None
    launch: Launch = field(default=run_cell)
    prove: Prove | None = field(default=gate.verdicts)
    """Whether backends compute the same: `algorithm/backend` -> `pass` or why not. None: nothing is claimed of them."""
    sample: Callable[[], dict[str, float]] = machine.sample
    """Counters of the machine; what changes between two of them is noise."""
    canary: Callable[[], dict[str, float]] | None = machine.canary
    """Times the machine around a block. None: nothing is claimed of time."""


def open_campaign(
    path: Path,
    study: Study,
    *,
    seed: int | None = None,
    note: str = "",
    new_stratum: bool = False,
    fingerprint: Mapping[str, Any] | None = None,
) -> Store:
    """The store of this study at `path`, made with its whole schedule if it is not there; wrong ones are refused.

    `fingerprint` is of the machine that will run it: this one's unless given. Without a seed it is 0, or that
    of the campaign that is there. A note for a campaign that has another is kept as an event.
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
            # Another coordinator has made it meanwhile: join it.
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
    """Refuse a store that holds something else than what is asked for."""
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
    """Refuse a study that this machine cannot run, before anything is."""
    machine.processors(max(cell.threads for cell in study.cells))
    if any(cell.device == "gpu" for cell in study.cells) and not fingerprint.get("gpu"):
        raise InputError(f"study {study.name} has device=gpu and no NVIDIA GPU answers here; use device=cpu")
    for id in dict.fromkeys(cell.run["env"] for cell in study.cells):
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


def work(store: Store, study: Study, watch: Watch) -> bool:
    """Run what is open until nothing is; False if asked to stop before. Extends groups that are not precise enough."""
    stratum = len(store.strata()) - 1
    # This process holds nothing yet: who did under its name was another, and is gone.
    store.forget(lambda name: name == owner() or owner_is_gone(name))
    try:
        prove(store, watch)
    except Interrupted:
        return False
    worker = Worker(store, study, watch, stratum, store.cells())
    while not watch.asked_to_stop():
        claim = store.claim(owner(), LEASE_S, stratum)
        if claim is not None:
            worker.fill(claim)
        elif store.progress(stratum).running:
            time.sleep(POLL_S)  # another coordinator is at it; it may die, and leave its slot to us
            store.forget(owner_is_gone)
        elif not extend_groups(store, study, stratum, watch):
            worker.close_block()
            return True
    return False


def prove(store: Store, watch: Watch) -> None:
    """Have the parity of every backend of the study on record, for the code as it is now; what failed is tried anew."""
    if watch.prove is None:
        return
    fingerprint = store.strata()[-1]
    known = [event.detail for event in store.events() if event.kind == "parity"]
    if known and known[-1]["code"] == fingerprint.get("code") and set(known[-1]["verdicts"].values()) == {"pass"}:
        return
    watch.said("proving that the backends compute the same")
    runs = [cell.run for cell in store.cells().values()]
    algorithms, backends = ({run[name] for run in runs} for name in ("algorithm", "backend"))
    found = watch.prove(algorithms, backends, fingerprint, lambda: not watch.asked_to_stop())
    store.add_event("parity", {"code": fingerprint.get("code"), "levels": gate.LEVELS, "verdicts": found})


@dataclass
class Worker:
    """Fills one slot after another, with a canary where one block ends and the next begins."""

    store: Store
    study: Study
    watch: Watch
    stratum: int
    cells: Mapping[str, Cell]
    block: tuple[str, int] | None = None

    def fill(self, claim: Claim) -> None:
        """Run the slot and store what came of it; a claim that is lost, or an interruption, stores nothing."""
        cell = self.cells[claim.slot.cell]
        block = cell.group, claim.slot.block
        if block != self.block:
            self.close_block()
            self.sing(block, "before")
            self.block = block
        if self.watch.asked_to_stop():
            return self.store.release(claim)
        self.watch.started(claim.slot, cell)
        try:
            attempt = self.attempt(claim, cell)
            self.store.finish(claim, attempt)
        except Fenced as lost:
            self.store.add_event("fenced", str(lost))
        except Interrupted:
            self.store.release(claim)
        else:
            self.watch.finished(claim.slot, cell, attempt)

    def attempt(self, claim: Claim, cell: Cell) -> Attempt:
        """One run, with what the machine did meanwhile."""
        started_at, before = datetime.now(UTC).isoformat(timespec="milliseconds"), self.watch.sample()
        lease = Lease(self.store, claim, self.watch.asked_to_stop)
        ended = self.watch.launch(cell, claim.slot.seed, self.study.timeout_s, lease.tick)
        noise = machine.between(before, self.watch.sample())
        tags = list(ended.tags)
        if machine.violations(noise):
            # Both are kept; only `noise` has the slot run again.
            tags.append("noise" if self.study.rerun_noisy else "noisy")
        record = Record.from_dict(ended.messages[0]["record"]) if ended.outcome == "ok" else None
        return Attempt(
            slot=claim.slot.id,
            number=claim.number,
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
        """The canary after the block that was last worked on, if any."""
        if self.block is not None and not self.watch.asked_to_stop():
            self.sing(self.block, "after")
        self.block = None

    def sing(self, block: tuple[str, int], when: str) -> None:
        """Keep what the canary measures, or that it could not."""
        if self.watch.canary is None:
            return
        group, number = block
        place = {"group": group, "block": number, "stratum": self.stratum, "when": when}
        try:
            self.store.add_canary(place | self.watch.canary())
        except subprocess.CalledProcessError as error:
            self.store.add_event("canary", place | {"failed": str(error)})


@dataclass
class Lease:
    """Keeps a claim alive while its run lasts."""

    store: Store
    claim: Claim
    asked_to_stop: Callable[[], bool]
    renewed_s: float = field(default_factory=time.monotonic)

    def tick(self) -> bool:
        """Renew when it is time; False when the user wants to stop."""
        if time.monotonic() - self.renewed_s > RENEW_S:
            self.store.renew(self.claim, LEASE_S)
            self.renewed_s = time.monotonic()
        return not self.asked_to_stop()


def extend_groups(store: Store, study: Study, stratum: int, watch: Watch) -> bool:
    """Append blocks to every group whose ratios are not known well enough; whether there is more to run."""
    if study.order != "protocol" or study.max_blocks == study.min_blocks:
        return False
    cells, slots = store.cells(), store.slots()
    counts = store.progress(stratum)
    if counts.open or counts.running:
        return True  # another coordinator has extended them meanwhile: first see what comes of it
    times, seed = block_times(store, stratum), store.campaign()["seed"]
    added: list[Slot] = []
    extended = []
    for group in dict.fromkeys(cell.group for cell in cells.values()):
        members = [cell.id for cell in cells.values() if cell.group == group]
        blocks = 1 + max(slot.block for slot in slots if slot.cell in members and slot.stratum == stratum)
        wanted = min(BLOCKS_AT_ONCE, study.max_blocks - blocks)
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
            watch.said(f"{what['undecided']} comparisons are not precise enough: {what['blocks']} more blocks")
    return True


def block_times(store: Store, stratum: int) -> dict[str, dict[int, float]]:
    """Cell -> block -> seconds of an iteration, of the attempts that speak for their slots."""
    found: dict[str, dict[int, float]] = {}
    for slot, attempt in results(store):
        if slot.stratum == stratum and attempt.record is not None:
            found.setdefault(slot.cell, {})[slot.block] = stopping_metric(attempt.record)
    return found


def results(store: Store) -> list[tuple[Slot, Attempt]]:
    """Every slot that has a result with the attempt that speaks for it, in schedule order."""
    tries: dict[str, list[Attempt]] = {}
    for attempt in store.attempts():
        tries.setdefault(attempt.slot, []).append(attempt)
    found = ((slot, kept(tries.get(slot.id, []))) for slot in store.slots())
    return [(slot, attempt) for slot, attempt in found if attempt is not None]


def complete(times: Mapping[str, Mapping[int, float]], members: Sequence[str]) -> dict[str, list[float]]:
    """Of the members that ran at all, the times in the blocks that all of them completed."""
    ran = [cell for cell in members if times.get(cell)]
    if len(ran) < 2:
        return {}
    common = sorted(set.intersection(*(set(times[cell]) for cell in ran)))
    return {cell: [times[cell][block] for block in common] for cell in ran}


def in_process(cell: Cell, seed: int, timeout_s: float, tick: Callable[[], bool]) -> Ended:
    """A run in this process, for debugging: what came before it is still in memory. Same result, no isolation."""
    started = time.monotonic()
    try:
        record = perform(Job(cell, seed, started))
    except InputError:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        return Ended("error", detail, duration_s=time.monotonic() - started, tags=("in-process",))
    finally:
        forget_programs()
    message = {"kind": "record", "record": asdict(record)}
    return Ended("ok", duration_s=time.monotonic() - started, messages=[message], tags=("in-process",))


def forget_programs() -> None:
    """Free what frameworks keep between runs: compiled programs, and what only they refer to."""
    if jax := sys.modules.get("jax"):
        jax.clear_caches()
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()
    gc.collect()


def owner() -> str:
    """Who holds a lease: this process on this host."""
    return f"{socket.gethostname()}:{os.getpid()}"


def owner_is_gone(name: str) -> bool:
    """Whether that owner is a process of this host that does not exist any more."""
    computer, _, process = name.rpartition(":")
    if computer != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError, OverflowError):
        return False
    return False
