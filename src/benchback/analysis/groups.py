"""Groups of cells that do the same work, their outcomes, what may be pooled, and the reference of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchback.measure.metrics import Turns
from benchback.measure.record import Cell
from benchback.plugins.towers import TOWERS
from benchback.stats import Measured


@dataclass(frozen=True)
class Outcome:
    """Metrics, ledger and return of one slot of the schedule."""

    block: int
    metrics: Mapping[str, Measured]
    ledger: Mapping[str, object]
    """Empty where there is no result."""
    episode_return: float | None
    first_call_s: float | None = None
    """Of the call that compiles."""
    turns: Mapping[str, Turns] = field(default_factory=dict)
    """Metric -> seconds by round, of a relay."""
    first: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Metrics of the first iterations; see `evidence.first_iterations`."""


@dataclass(frozen=True)
class Group:
    """Cells that do the same work, each with its outcomes by block."""

    title: str
    cells: tuple[Cell, ...]
    outcomes: Mapping[str, Mapping[int, Outcome]]
    """Cell id -> block -> outcome."""
    amount: str = ""
    """How much work it is, where the title without it would not be unique; part of the title."""

    def only(self, *cells: Cell) -> "Group":
        """The same group with some of its cells."""
        return replace(self, cells=cells, outcomes={cell.id: self.outcomes[cell.id] for cell in cells})

    def cell(self, variant: str) -> Cell | None:
        """The cell of that variant, if the group has one."""
        return next((cell for cell in self.cells if cell.variant == variant), None)


@dataclass(frozen=True)
class Setting:
    """What is never pooled."""

    algorithm: str
    timing: str
    device: str
    threads: int
    agents: int = 1
    """Trained in one program."""


def grouped(cells: Mapping[str, Cell], outcomes: Mapping[str, Mapping[int, Outcome]]) -> list[Group]:
    """Cells that do the same work together, with the outcomes of each by block."""
    found: dict[str, list[Cell]] = {}
    for cell in cells.values():
        found.setdefault(cell.group, []).append(cell)
    titles = [work_title(members[0]) for members in found.values()]
    made = []
    for title, members in zip(titles, found.values(), strict=True):
        amount = "" if titles.count(title) == 1 else work_amount(members[0])
        title = f"{title}, {amount}" if amount else title
        made.append(Group(title, tuple(members), {cell.id: outcomes[cell.id] for cell in members}, amount))
    return made


def work_title(cell: Cell, *, algorithm: bool = True, suite: bool = True) -> str:
    """`ppo gymnax/CartPole-v1 small, async, 64 agents`: the work of a group, with or without algorithm and suite.

    Floats in which the agents differ are named: `64 agents, learning_rate varied`.
    """
    first = f"{cell.run['algorithm']} " if algorithm else ""
    env = cell.run["env"] if suite else env_of(cell)
    threads = "" if cell.threads == 1 else f", {cell.threads} threads"
    agents = "" if cell.members == 1 else f", {cell.members} agents"
    varied = "".join(f", {name} varied" for name in cell.vary)
    return f"{first}{env} {model_of(cell)}, {cell.timing}{threads}{agents}{varied}"


def work_amount(cell: Cell) -> str:
    """How much work it is; tells groups apart that are otherwise alike."""
    return f"{cell.run['num_envs']} x {cell.run['num_steps']} steps x {cell.run['num_iterations']} ({cell.group[:4]})"


def env_of(cell: Cell) -> str:
    """The environment without its suite; where it is stepped is part of the variant."""
    return str(cell.run["env"]).rpartition("/")[2]


def model_of(cell: Cell) -> str:
    """The name of the model, or its layers; with the kind of network unless that is the usual one.

    A convolutional network with layers of its own has no model.
    """
    hidden = cell.run["hidden_sizes"]
    if cell.network in TOWERS and not hidden:
        return cell.network
    size = "x".join(map(str, hidden)) if hidden else str(cell.run["model"])
    return size if cell.network == "mlp" else f"{cell.network} {size}"


def original(cell: Cell) -> Cell:
    """The cell of which a twin is the copy; the cell itself where it is none."""
    return replace(cell, twin=False) if cell.twin else cell


def setting_of(cell: Cell) -> Setting:
    """What of a cell is never pooled with another."""
    return Setting(str(cell.run["algorithm"]), cell.timing, cell.device, cell.threads, cell.members)


def by_setting(groups: Sequence[Group]) -> dict[Setting, list[Group]]:
    """Groups by what is never pooled, in order of mention."""
    found: dict[Setting, list[Group]] = {}
    for group in groups:
        found.setdefault(setting_of(group.cells[0]), []).append(group)
    return found


def comparable(groups: Sequence[Group]) -> list[tuple[Setting, list[Group]]]:
    """Groups of one setting that have a reference in common; those that lack it have another."""
    found: list[tuple[Setting, list[Group]]] = []
    for setting, rest in by_setting(groups).items():
        while rest:
            reference = reference_variant(rest)
            having = [group for group in rest if group.cell(reference)]
            found.append((setting, having))
            rest = [group for group in rest if group not in having]
    return found


def reference_variant(groups: Sequence[Group]) -> str:
    """The variant to compare with: the one that most groups have, the first mentioned among equals."""
    names = [cell.variant for group in groups for cell in group.cells if not cell.twin]
    return max(dict.fromkeys(names), key=names.count)
