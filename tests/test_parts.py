"""Members divided over nodes: the same numbers as on one machine, whatever nodes do.

The nodes are doubles in this process; their parts are trained for real.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TINY

from benchback.cli import training as verbs
from benchback.cli import tuning
from benchback.errors import InputError
from benchback.population import folder as folders
from benchback.population.folder import PopulationDir, open_population
from benchback.population.parts import MOST_LOST, Ask, Lost, Trainee, boundaries, even_devices, train_parts
from benchback.population.spec import Members, Population
from benchback.population.training import Progress, built, train_members, train_population
from benchback.tools.tune.searching import Search, Settings, find_programs, train_programs
from benchback.tools.tune.space import Space
from benchback.training.checkpoint import Checkpoint
from benchback.training.run import Run

RUN = Run(
    replace(TINY, num_epochs=1, num_minibatches=1, hidden_sizes=(4,)), backend="purejax", mode="jit", unit="iteration"
)
"""With its mode by name: as nodes get it, so that all share the programs."""
MEMBERS = Members(tuple(range(8)), {"learning_rate": tuple(np.geomspace(1e-4, 1e-1, 8).tolist())})
BUILD = lru_cache(8)(built)


class Doubles:
    """Nodes in this process. `happens` sees every ask before it is answered and says why its node is lost, if it is."""

    def __init__(self, *widths: int, happens: Callable[[Ask], str | None] = lambda ask: None) -> None:
        self.happens, self.asked, self.started = happens, [], 0
        self.trainees: dict[str, Trainee] = {}
        self.width: dict[str, int] = {}
        for width in widths:
            self.join(width)

    def join(self, width: int = 1) -> None:
        name = f"node {self.started}"
        self.trainees[name], self.width[name], self.started = Trainee(), width, self.started + 1
        self.trainees[name].build = BUILD

    def widths(self) -> Mapping[str, int]:
        return dict(self.width)

    def each(self, asks: Mapping[int, Ask]) -> Mapping[int, Any]:
        return {part: self.one(ask) for part, ask in asks.items()}

    def one(self, ask: Ask) -> Any:
        self.asked.append(ask)
        why = self.happens(ask)
        if why is not None and ask.node in self.trainees:
            del self.trainees[ask.node], self.width[ask.node]
            self.join()
        if ask.node not in self.trainees:
            return Lost(why or "gone")
        return getattr(self.trainees[ask.node], ask.what)(*ask.given)


def train(nodes: Doubles, **options: Any) -> Iterator[Progress]:
    given: dict[str, Any] = {"group": 2} | options
    return train_parts(RUN, MEMBERS, nodes=nodes, **given)


@pytest.fixture(scope="module")
def alone() -> list[tuple[dict[str, np.ndarray], list[dict[str, float]], dict[str, np.ndarray]]]:
    """Metrics, rows and states after each call of the same members on one machine."""
    return [(x.metrics, x.rows, x.export()) for x in train_members(RUN, MEMBERS, group=2, build=BUILD)]


def same(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name, x in theirs.items():
        np.testing.assert_array_equal(ours[name], x, err_msg=name)


def test_parts_on_two_nodes_are_the_members_of_one_machine_to_the_last_bit(alone: list[Any]) -> None:
    nodes = Doubles(1, 1)
    for progress, (metrics, rows, weights) in zip(train(nodes), alone, strict=True):
        same(progress.metrics, metrics)
        np.testing.assert_equal(progress.rows, rows)
        same(progress.export(), weights)
        same(progress.export_member(6), {name: x[6] for name, x in weights.items()})
    assert {(ask.node, ask.given[0]) for ask in nodes.asked} == {("node 0", 0), ("node 1", 1)}


@pytest.mark.parametrize("what", ["train", "export"])
def test_a_part_whose_node_is_lost_goes_on_from_the_last_exported_state(what: str, alone: list[Any]) -> None:
    told: list[str] = []
    nodes = Doubles(1, 1)
    for number, (progress, (metrics, _, weights)) in enumerate(zip(train(nodes, log=told.append), alone, strict=True)):
        same(progress.metrics, metrics)
        if number == 1:
            same(progress.export(), weights)
        if number == 3:
            lost = iter([True])
            nodes.happens = lambda ask: "killed" if ask.what == what and next(lost, False) else None  # noqa: B023
        if number in (3, 5):
            same(progress.export(), weights)
    assert told == [f"members 0 to 3 go on elsewhere from iteration {4 if what == 'train' else 2}: killed"]
    again = [
        ask.given[2].checkpoint.iteration for ask in nodes.asked if len(ask.given) == 3 and ask.given[2].checkpoint
    ]
    assert again == [4 if what == "train" else 2]


def test_all_parts_go_to_the_node_that_is_left(alone: list[Any]) -> None:
    nodes = Doubles(1, 1)
    for number, (progress, (metrics, _, _)) in enumerate(zip(train(nodes), alone, strict=True)):
        same(progress.metrics, metrics)
        if number == 2:
            del nodes.trainees["node 1"], nodes.width["node 1"]
    assert nodes.trainees["node 0"].calls.keys() == {0, 1}


def test_a_part_that_takes_nodes_with_it_ends_the_training_with_the_remedy() -> None:
    nodes = Doubles(1, 1, happens=lambda ask: "out of memory" if ask.what == "export" else None)
    progress = next(train(nodes))
    with pytest.raises(InputError, match=rf"members 0 to 3 have lost {MOST_LOST} nodes.*out of memory.*--resume"):
        progress.export()


def test_a_population_goes_on_from_its_folder_with_other_nodes_or_none(tmp_path: Path, alone: list[Any]) -> None:
    place, calls = tmp_path / "run", iter([False, True])
    asked = Population(seeds=8, group=2)

    def go_on(nodes: Doubles | None, **options: Any) -> Any:
        origin = open_population(place) if (place / "checkpoint.safetensors").exists() else None
        trainer = partial(train_members, build=BUILD) if nodes is None else partial(train_parts, nodes=nodes)
        given = {"members": MEMBERS, "out": place, "origin": origin, "trainer": trainer} | options
        return train_population(RUN, asked, **given)

    assert go_on(Doubles(1, 1), asked_to_stop=lambda: next(calls)).iteration == 2
    stops = iter([True])
    assert go_on(Doubles(1), asked_to_stop=lambda: next(stops)).iteration == 3
    trained = go_on(None)
    assert not trained.interrupted
    same(open_population(place).checkpoint.weights, alone[-1][2])
    assert [int(row["iteration"]) for row in trained.folder.rows()] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(trained.scores, folders.scores(PopulationDir(place), 8, 6))


def test_a_search_on_nodes_ends_as_on_one_machine(tmp_path: Path) -> None:
    space = Space("s", RUN.to_dict(), random={}, grid={"learning_rate": [1e-3, 1e-2]}, seeds=4)
    nodes = Doubles(1, 1)

    def found(out: str, trainer: Callable[..., Any], width: int) -> list[Any]:
        search = Search(space, Settings(group=2), 0, tmp_path / out, trainer=trainer, width=width)
        return train_programs(search, find_programs(search))

    here = found("here", partial(train_members, build=BUILD), 1)
    assert found("there", partial(train_parts, nodes=nodes), 2) == here
    assert {ask.node for ask in nodes.asked} == {"node 0", "node 1"}


@pytest.mark.parametrize(
    ("size", "group", "widths", "expected"),
    [
        (8, 2, [1, 1], [0, 4, 8]),
        (9, 4, [1, 1], [0, 8, 9]),
        (64, 4, [8, 8], [0, 32, 64]),
        (12, 2, [1, 2], [0, 4, 12]),
        (3, 1, [1, 1, 1, 1], [0, 1, 2, 3]),
        (4, 4, [1, 1], [0, 4]),
    ],
)
def test_parts_are_whole_groups_as_many_as_a_node_has_devices(
    size: int, group: int, widths: list[int], expected: list[int]
) -> None:
    assert boundaries(size, group, widths) == expected


def test_devices_of_a_node_have_whole_groups() -> None:
    assert [even_devices(16, 2, 8), even_devices(14, 2, 8), even_devices(15, 2, 8), even_devices(2, 4, 8)] == [
        8,
        7,
        1,
        1,
    ]


def test_a_node_forgets_the_parts_of_earlier_trainings() -> None:
    nodes = Doubles(1)
    for _ in range(2):
        assert next(train(nodes)).iteration == 1
    (trainee,) = nodes.trainees.values()
    assert trainee.jobs.keys() == trainee.calls.keys() == {0}


@pytest.mark.slow
def test_members_of_torch_are_trained_in_turn_on_their_nodes() -> None:
    run = Run(
        replace(TINY, num_iterations=2, hidden_sizes=(4,)), backend="pytorch", env="torch/CartPole-v1", mode="none"
    )
    members = Members((0, 1, 2), {})
    *_, here = train_members(run, members, group=1)
    *_, there = train_parts(run, members, nodes=Doubles(1, 1))
    same(there.export(), here.export())
    same(there.metrics, here.metrics)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"env": "gymnasium/CartPole-v1"}, {}, "runs in Python, and a population in one program"),
        ({"mode": "eager"}, {}, "mode=eager does not fit a population"),
        ({}, {"group": 9}, "group=9 does not fit 8 members"),
        ({}, {"devices": 2}, "--devices 2 is about one machine"),
    ],
)
def test_what_cannot_be_a_population_is_refused_before_a_node_is_asked(
    change: dict[str, Any], options: dict[str, int], words: str
) -> None:
    nodes = Doubles(1, 1)
    given: dict[str, Any] = {"group": 2} | options
    with pytest.raises(InputError, match=words):
        train_parts(replace(RUN, **change), MEMBERS, nodes=nodes, **given)
    assert not nodes.asked


def test_a_state_that_does_not_lead_to_the_end_is_refused() -> None:
    with pytest.raises(InputError, match="7 of 6 iterations are done"):
        train(Doubles(1), checkpoint=Checkpoint({}, 7, RUN.to_dict()))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--on", "ray:auto"], "--on divides the members of a population over nodes"),
        (["--seeds", "2", "--ship"], "--ship sends code to a cluster; add --on"),
        (["--seeds", "2", "--on", "ray:auto", "--devices", "2"], "--devices is about processes of your own"),
        (["--seeds", "2", "--on", "ray:auto", "--coordinator", "a:1"], "--coordinator is about processes of your own"),
        (["--seeds", "2", "--on", "slurm"], "--on slurm must be ray://HOST:PORT"),
    ],
)
def test_flags_of_train_that_do_not_go_with_a_cluster_are_refused(flags: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        verbs.train(["ppo", *flags])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--method", "halving", "--on", "ray:auto"], "halving chooses between members while they are trained"),
        (["--method", "pbt", "--on", "ray:auto"], "pbt chooses between members"),
        (["--method", "runs", "--on", "ray:auto"], "--on is about populations, and this is --method runs"),
        (["--on", "ray:auto", "--devices", "2"], "--devices 2 is about this machine"),
        (["--ship"], "--ship sends code to a cluster; add --on"),
    ],
)
def test_searches_that_a_cluster_does_not_do_are_refused(flags: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        tuning.tune(["ppo", "--vary", "gamma=0.9,0.99", *flags])
