"""Members divided over nodes: each node trains a part of them, and all parts together are one population.

All parts are in the same iteration after every call, so that folders, checkpoints and resuming are those of a
population on one machine. Members do not need one another, and parts begin where a group does: member i is the same run
wherever it is trained. A part whose node is lost goes on elsewhere from its last exported state; what it repeats comes
out as before, and is not reported again. What a node is, and how it is reached, is up to `Nodes`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np

from benchback import training
from benchback.agent import Weights
from benchback.errors import InputError
from benchback.population import training as populations
from benchback.population.members import compile_mode
from benchback.population.spec import Members
from benchback.population.summary import summarise
from benchback.population.training import Progress
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run

MOST_LOST = 3
"""Nodes that a part may take with it in one iteration."""
PROGRAMS = 8
"""Compiled programs that a node keeps: those of a search are often the same."""


@dataclass(frozen=True)
class Job:
    """A part of a population, from the start or from a state of its members."""

    training: int
    """Which of the trainings of the driver this is; a node forgets the parts of others."""
    run: Mapping[str, Any]
    members: Members
    group: int
    checkpoint: Checkpoint | None
    """Of these members."""


@dataclass(frozen=True)
class Call:
    """What a part's last program call gave."""

    metrics: Mapping[str, np.ndarray]
    """Of shape [iterations of the call, members]; empty before the first one."""
    compiles: int


@dataclass(frozen=True)
class Lost:
    """Instead of an answer: the node has ended."""

    why: str


@dataclass(frozen=True)
class Ask:
    """What a node is asked to do for a part: a method of `Trainee`, and its arguments."""

    node: str
    what: str
    given: tuple[Any, ...]


@runtime_checkable
class Nodes(Protocol):
    """The nodes as the driver sees them."""

    def widths(self) -> Mapping[str, int]:
        """Node that is there now -> its devices; waits for the first."""
        ...

    def each(self, asks: Mapping[int, Ask]) -> Mapping[int, Any]:
        """The answers to all, asked at the same time: part -> answer, or Lost."""
        ...


class Trainee:
    """The parts that a node trains."""

    def __init__(self, devices: int = 1) -> None:
        self.devices, self.build = devices, lru_cache(PROGRAMS)(populations.built)
        self.jobs: dict[int, Job] = {}
        self.calls: dict[int, Iterator[Progress]] = {}
        self.progress: dict[int, Progress] = {}

    def begin(self, part: int, job: Job) -> None:
        """Prepare to train a part; InputError if it cannot be trained."""
        self.jobs = {other: x for other, x in self.jobs.items() if x.training == job.training} | {part: job}
        self.calls = {other: x for other, x in self.calls.items() if other in self.jobs and other != part}
        self.progress = {other: x for other, x in self.progress.items() if other in self.calls}
        run = Run.from_dict(dict(job.run))
        options: dict[str, Any] = {"group": min(job.group, len(job.members)), "checkpoint": job.checkpoint}
        if not populations.in_turn(run):
            options |= {"devices": even_devices(len(job.members), job.group, self.devices), "build": self.build}
        self.calls[part] = populations.train_members(run, job.members, **options)

    def train(self, part: int, until: int, job: Job | None = None) -> Call:
        """Train a part until so many iterations are done, from the start of its job if one is given."""
        if job is not None:
            self.begin(part, job)
        while self.done(part) < until:
            self.progress[part] = next(self.calls[part])
        last = self.progress.get(part)
        return Call({}, 0) if last is None else Call(last.metrics, last.compiles)

    def done(self, part: int) -> int:
        """Completed iterations."""
        at = self.jobs[part].checkpoint
        return self.progress[part].iteration if part in self.progress else at.iteration if at else 0

    def export(self, part: int) -> Weights:
        """The states of a part's members."""
        return self.progress[part].export()

    def export_member(self, part: int, index: int) -> Weights:
        """The state of one of a part's members."""
        return self.progress[part].export_member(index)


def even_devices(size: int, group: int, most: int) -> int:
    """The largest number of devices that divides the groups of so many members evenly; 1 if a group is not full."""
    groups, rest = divmod(size, min(group, size))
    return 1 if rest else next(n for n in range(most, 0, -1) if groups % n == 0)


def boundaries(size: int, group: int, widths: Sequence[int]) -> list[int]:
    """Where the parts of so many members begin, and the end: whole groups, as many as a node has devices."""
    groups = -(-size // group)
    shares = np.cumsum([0, *widths]) / sum(widths)
    return sorted({min(size, group * round(groups * share)) for share in shares.tolist()})


@dataclass
class Part:
    """Members that are together on a node."""

    number: int
    first: int
    job: Job
    """Where it begins again if its node is lost."""
    node: str | None = None
    lost: int = 0
    """Nodes lost in this iteration."""

    @property
    def end(self) -> int:
        return self.first + len(self.job.members)


@dataclass
class Together:
    """The parts of a population and where they are."""

    nodes: Nodes
    parts: list[Part]
    log: Callable[[str], None]

    def reach(self, iteration: int, parts: Sequence[Part] | None = None) -> dict[int, Call]:
        """Train parts, by default all, until so many iterations are done."""

        def ask(part: Part) -> Ask:
            # Whoever has it already goes on; somebody else begins with the state that was exported last.
            given = (part.number, iteration) if part.node else (part.number, iteration, part.job)
            return Ask(part.node or self.place(part), "train", given)

        found = self.all(self.parts if parts is None else parts, ask)
        if parts is None:
            for part in self.parts:
                part.lost = 0
        return found

    def ask(self, iteration: int, what: str, parts: Sequence[Part], *given: Any) -> dict[int, Any]:
        """What the parts answer after so many iterations; those whose node is lost are trained up to there first."""

        def ask(part: Part) -> Ask:
            if part.node is None:
                self.reach(iteration, [part])
            return Ask(part.node or "", what, (part.number, *given))

        return self.all(parts, ask)

    def all(self, parts: Sequence[Part], ask: Callable[[Part], Ask]) -> dict[int, Any]:
        """The answers of all parts, some of which may need several nodes."""
        found: dict[int, Any] = {}
        while left := [part for part in parts if part.number not in found]:
            asks = {part.number: ask(part) for part in left}
            answers = self.nodes.each(asks)
            for part in left:
                answer = answers[part.number]
                if isinstance(answer, Lost):
                    self.lose(part, answer)
                else:
                    found[part.number] = answer
        return found

    def lose(self, part: Part, lost: Lost) -> None:
        """Note that a part has no node any more; InputError if that happens again and again."""
        begun = part.job.checkpoint.iteration if part.job.checkpoint else 0
        self.log(f"members {part.first} to {part.end - 1} go on elsewhere from iteration {begun}: {lost.why}")
        part.node, part.lost = None, part.lost + 1
        if part.lost >= MOST_LOST:
            raise InputError(
                f"members {part.first} to {part.end - 1} have lost {part.lost} nodes, the last one because {lost.why}; "
                "see to the nodes, and go on from the last checkpoint with --resume"
            )

    def place(self, part: Part) -> str:
        """The node with the fewest members for its devices gets the part."""
        widths = self.nodes.widths()
        load = dict.fromkeys(widths, 0)
        for other in self.parts:
            if other.node in load:
                load[other.node] += other.end - other.first
        part.node = min(widths, key=lambda node: load[node] / widths[node])
        return part.node

    def export(self, iteration: int, run: Run) -> Weights:
        """The states of all members, from which lost parts begin from now on."""
        found = self.ask(iteration, "export", self.parts)
        names = found[self.parts[0].number]
        stacked = {name: np.concatenate([found[part.number][name] for part in self.parts]) for name in names}
        for part in self.parts:
            own = {name: x[part.first : part.end] for name, x in stacked.items()}
            part.job = replace(part.job, checkpoint=Checkpoint(own, iteration, run.to_dict()))
        return stacked

    def export_member(self, iteration: int, index: int) -> Weights:
        """The state of one member."""
        part = next(part for part in self.parts if index < part.end)
        return self.ask(iteration, "export_member", [part], index - part.first)[part.number]


NUMBERS = iter(range(2**62))
"""Of the trainings of this process."""


def train_parts(
    run: Run,
    members: Members,
    *,
    nodes: Nodes,
    group: int | None = None,
    devices: int = 1,
    checkpoint: Checkpoint | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Iterator[Progress]:
    """`train_members` with the members divided over nodes; what cannot be trained is rejected by this call."""
    if devices != 1:
        raise InputError(f"--devices {devices} is about one machine; leave it out: a node uses all that it has")
    iteration = checkpoint.iteration if checkpoint else 0
    training.check_rest(run, iteration)
    widths = nodes.widths()
    group = group or populations.group_of(run, -(-len(members) // sum(widths.values())))
    check(run, len(members), group)
    together = Together(nodes, parts_of(run, members, group, list(widths.values()), checkpoint), log)
    together.reach(iteration)
    return _loop(run, together, iteration)


def check(run: Run, size: int, group: int) -> None:
    """Raise an InputError if so many members of the run cannot be trained, as on one machine."""
    if populations.in_turn(run):
        return
    compile_mode(populations.plain(run)[1], run.compile_mode)
    if group > size:
        raise InputError(f"group={group} does not fit {size} members; choose 1 to {size}")


def parts_of(
    run: Run, members: Members, group: int, widths: Sequence[int], checkpoint: Checkpoint | None
) -> list[Part]:
    """The members in parts, one for each node or fewer."""
    training_number, flat = next(NUMBERS), run.to_dict()

    def job(first: int, end: int) -> Job:
        values = {name: x[first:end] for name, x in members.values.items()}
        own = Members(members.seed[first:end], values)
        at = checkpoint and replace(checkpoint, weights={n: x[first:end] for n, x in checkpoint.weights.items()})
        return Job(training_number, flat, own, group, at)

    bounds = boundaries(len(members), group, widths)
    return [Part(number, first, job(first, end)) for number, (first, end) in enumerate(pairwise(bounds))]


def _loop(run: Run, together: Together, iteration: int) -> Iterator[Progress]:
    while iteration < run.config.num_iterations:
        iteration += run.length
        calls = together.reach(iteration)
        found = [calls[part.number] for part in together.parts]
        metrics = {name: np.concatenate([call.metrics[name] for call in found], axis=1) for name in found[0].metrics}
        yield Progress(
            iteration=iteration,
            rows=summarise(metrics),
            compiles=max(call.compiles for call in found),
            export=lambda at=iteration: together.export(at, run),
            metrics=metrics,
            export_member=lambda index, at=iteration: together.export_member(at, index),
        )
