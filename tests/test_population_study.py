"""Cells of several agents: what they are called, who may have them, what their workers run and record."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_double import work
from conftest import TINY
from relay_campaign import hooks

from benchback import registry
from benchback.agent import networks
from benchback.analysis.reader import stored_attempts
from benchback.errors import InputError
from benchback.measure import gate, plan
from benchback.measure.cost import iteration_seconds, start_seconds
from benchback.measure.program import mean_of_members
from benchback.measure.record import Cell
from benchback.measure.relay import warm_iterations
from benchback.measure.relay_worker import Runner
from benchback.measure.store import open_store
from benchback.measure.study import Product, Study, load
from benchback.measure.verify import disagreements
from benchback.measure.worker import Job, SharedWeights
from benchback.parity import prove
from benchback.population.members import member
from benchback.training.run import Run

SEED = 5
FIELDS = {"env": "gymnax/CartPole-v1", "unit": "iteration"}


def cell(backend: str = "purejax", members: int = 1, **changes: Any) -> Cell:
    fields = Run(TINY, backend=backend, unit="iteration").to_dict() | changes
    return Cell({name: x for name, x in fields.items() if name != "seed"}, members=members)


def study(**fixed: Any) -> Study:
    return Study("mine", (Product({"members": [fixed.pop("members", 2)]}, fixed=FIELDS | fixed),))


def test_one_agent_is_not_named_so_that_earlier_stores_keep_their_ids() -> None:
    assert "members" not in cell().to_dict()
    assert cell().id == Cell.from_dict(cell().to_dict()).id
    assert not cell().proof.endswith("population")


def test_agents_are_part_of_the_work_not_of_the_variant() -> None:
    one, many, more = (cell(members=n) for n in (1, 4, 64))
    assert len({x.group for x in (one, many, more)}) == len({x.id for x in (one, many, more)}) == 3
    assert one.variant == many.variant == more.variant
    assert more.name == "purejax/jit/iteration, 64 agents"
    assert many.proof == more.proof == f"{one.proof}/population", "the proof is of any number of members"
    assert Cell.from_dict(many.to_dict()) == many
    assert cell("linen", 4).group == many.group


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        (
            {"backend": "pytorch"},
            "backend=pytorch trains one agent per program; use members 1, or a backend of the JAX",
        ),
        ({"backend": "nnx", "mode": "jit"}, "mode=jit does not fit several members.*use none or split"),
        ({"backend": "linen", "mode": "eager"}, "mode=eager does not fit several members"),
        ({"env": "gymnasium/CartPole-v1"}, "gymnasium runs in Python; use gymnax"),
        ({"members": 0}, "members=0 must be a whole number of at least 1"),
        ({"members": 2.5}, "members=2.5 must be a whole number"),
        ({"members": "many"}, "members='many' must be a whole number"),
    ],
)
def test_agents_that_cannot_be_one_program_are_refused(fixed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study(**fixed)


GRID = {"learning_rate": "1e-3,1e-2"}


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"members": 5, "vary": GRID}, "5 members do not divide among the 2 points of the grid; use 8, say"),
        ({"members": 1, "vary": GRID}, "vary=.* is about several agents; give members"),
        ({"vary": {"num_envs": "2,4"}}, "num_envs: it is part of the program, the same for all members"),
        ({"vary": {"learning_rat": "1,2"}}, "learning_rat: not a field of a ppo run; did you mean learning_rate"),
        ({"vary": {"clip": "0.1..0.2"}}, "clip is a range, of which a grid needs a number of values"),
        ({"vary": "learning_rate"}, "vary='learning_rate' must be a mapping of fields to values"),
    ],
)
def test_floats_that_agents_cannot_differ_in_are_refused(fixed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study(**fixed)


def test_what_varies_is_part_of_the_work_and_named_only_where_it_varies() -> None:
    plain, search = cell(members=4), replace(cell(members=4), vary=GRID)
    assert "vary" not in plain.to_dict()
    assert Cell.from_dict(search.to_dict()) == search
    assert search.group != plain.group
    assert replace(search, vary={}).id == plain.id
    assert search.proof == plain.proof, "floats are data of the same program"


def test_one_agent_is_possible_everywhere() -> None:
    for backend in registry.BACKENDS:
        assert study(backend=backend, members=1).cells[0].members == 1


def test_the_mean_of_members_leaves_out_those_without_an_episode_only_where_there_may_be_none() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(mean_of_members("episode_return", values), [2.0, np.nan])
    np.testing.assert_array_equal(mean_of_members("policy_loss", values), [np.nan, np.nan])
    np.testing.assert_array_equal(mean_of_members("policy_loss", np.array([1.0, 2.0])), 1.5)


MEMBERS = 3


def runner(folder: Path, backend: str, *, writes: bool, members: int = MEMBERS, **changes: Any) -> Runner:
    vary = changes.pop("vary", {})
    job = Job(replace(cell(backend, members, **changes), vary=vary), SEED, time.monotonic())
    warm, most = warm_iterations([job.cell])
    return Runner(job, SharedWeights(folder / "weights.safetensors", writes), warm, most)


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Runner]:
    """Two populations and one agent that start from the same networks, in the order in which they were started."""
    folder = tmp_path_factory.mktemp("weights")
    made = {"purejax": runner(folder, "purejax", writes=True), "nnx": runner(folder, "nnx", writes=False)}
    return made | {"alone": runner(folder, "purejax", writes=False, members=1)}


def test_all_start_from_the_same_networks_and_learn_the_same(runners: dict[str, Runner]) -> None:
    one, two = runners["purejax"], runners["nnx"]
    assert one.weights == two.weights == runners["alone"].weights
    for name in ("policy_loss", "value_loss", "grad_norm"):
        first, second = (np.array(x.training.samples[name], float) for x in (one, two))
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5, err_msg=name)
        assert len(set(first)) > 1, "nothing was learned: the test shows nothing"


def test_points_of_a_search_have_their_own_floats_and_common_seeds(tmp_path: Path) -> None:
    search = runner(tmp_path, "purejax", writes=True, members=4, vary=GRID)
    for _ in range(2):
        state: Any = search.training.state
        np.testing.assert_allclose(state.hyper.learning_rate, [1e-3, 1e-3, 1e-2, 1e-2])
        search.begin_again()
    keys = [search.training.agent.key(SEED)[i] for i in range(4)]
    assert keys[0] == keys[2] != keys[1] == keys[3]
    search.turn(2, 1, 0)
    assert search.record().ledger["compiles_in_turns"] == 0


def test_members_begin_with_one_network_and_go_their_own_ways(runners: dict[str, Runner]) -> None:
    training = runners["purejax"].training
    single = training.program.single
    assert single is not None
    after = [networks(single.export(member(training.agent, training.state, i))) for i in range(MEMBERS)]
    assert not np.allclose(after[0]["actor/0/kernel"], after[1]["actor/0/kernel"], atol=1e-7)
    one = runners["alone"].training
    alone = networks(one.agent.export(one.state))
    for name, x in alone.items():
        np.testing.assert_allclose(after[0][name], x, atol=1e-5, err_msg="the first member is the agent with its seed")


def test_the_ledger_counts_all_agents_steps_and_one_agents_parameters(runners: dict[str, Runner]) -> None:
    many, alone = runners["purejax"].ledger, runners["alone"].ledger
    assert many["members"] == MEMBERS
    assert many["group"] == MEMBERS, "so small agents fit the cache together"
    assert many["env_steps_per_call"] == MEMBERS * alone["env_steps_per_call"]
    for name in ("parameters", "optimiser_steps", "forward_flops", "gradient_flops"):
        assert many[name] == alone[name], name
    # The tests share a cache of programs, runs do not.
    ours, theirs = (x | {"cached_files_before": 0} for x in (many, runners["nnx"].ledger))
    assert disagreements({"a": ours, "b": theirs | {"group": 1}}) == []
    assert {x.field for x in disagreements({"a": many, "b": alone})} >= {"members", "env_steps_per_iteration"}


def test_a_population_begins_again_before_its_learning_rate_ends(runners: dict[str, Runner]) -> None:
    """From the third iteration on again: the same losses, and nothing is kept twice for it."""
    found = runners["purejax"]
    assert found.checkpoint is None
    left = TINY.num_iterations - found.warm
    found.turn(left, 1, 0)
    found.turn(left, 2, 0)
    losses = found.record().samples["policy_loss"]
    assert losses[found.warm : found.warm + left] == losses[found.warm + left :]
    assert found.record().samples["iteration"][-left:] == list(range(found.warm + 1, TINY.num_iterations + 1))
    assert found.record().ledger["compiles_in_turns"] == 0


STUDY = load("population")


def test_the_study_compares_backends_at_equal_numbers_of_agents_and_one_agent_in_all_six() -> None:
    groups: dict[str, list[Cell]] = {}
    for each in STUDY.cells:
        groups.setdefault(each.group, []).append(each)
    sizes = {cells[0].members: sorted(x.run["backend"] for x in cells) for cells in groups.values()}
    family = sorted(name for name, spec in registry.BACKENDS.items() if spec.family == "jax")
    assert sizes == {1: sorted(registry.BACKENDS)} | dict.fromkeys((8, 64, 512, 4096), family)


def test_the_study_of_searches_has_one_program_for_all_points_and_the_same_training_alone() -> None:
    work = {"one training": sorted(registry.BACKENDS), "a search": sorted(set(registry.BACKENDS) - {"pytorch"})}
    found = load("search")
    assert {x: sorted(e.cell.run["backend"] for e in found.entries if e.label == x) for x in work} == work
    search = [e.cell for e in found.entries if e.label == "a search"]
    assert {x.members for x in search} == {64}
    assert {replace(x, members=1, vary={}).id for x in search} < {x.id for x in found.cells}


def test_what_is_wanted_last_is_scheduled_last_and_counted_only_if_it_fits() -> None:
    cells, slots = plan.schedule(STUDY, 3)
    members = {x.id: x.members for x in cells}
    order = [members[slot.cell] for slot in sorted(slots, key=lambda slot: slot.order)]
    last = order.index(4096)
    assert set(order[last:]) == {4096}
    assert len(set(order[:last])) > 1
    assert order[:last] != sorted(order[:last]), "the others are shuffled"
    everything, most = plan.estimate(replace(STUDY, budget_s=None)), plan.estimate(STUDY)
    assert (everything.runs, most.runs) == (len(order), last)
    assert most.seconds < everything.seconds / 1.3


@pytest.mark.parametrize(("budget_s", "measured"), [(5.0, {1}), (1e5, {1, 64})])
def test_what_is_wanted_last_is_not_begun_without_time_for_it(
    budget_s: float, measured: set[int], tmp_path: Path
) -> None:
    backends = ["linen", "nnx"]
    parts = (
        Product({"backend": backends, "members": [64]}, "later", FIELDS, last=True),
        Product({"backend": backends}, "first", FIELDS),
    )
    mine = Study("mine", parts, min_blocks=1, max_blocks=1, aa=False, budget_s=budget_s)
    store = tmp_path / "mine.sqlite"
    assert work(store, replace(hooks(), clock=lambda: 0.0), mine)
    with open_store(store, readonly=True) as opened:
        assert {found.cell.members for found in stored_attempts(opened)} == measured


def test_a_label_is_wanted_last_or_not() -> None:
    parts = [Product({"members": [n]}, "one label", FIELDS, last=n > 2) for n in (2, 4)]
    with pytest.raises(InputError, match="label='one label' is of products with last and without"):
        Study("mine", tuple(parts))


def test_cost_grows_with_the_members() -> None:
    one, many = cell(), cell(members=100)
    assert iteration_seconds(many) == pytest.approx(100 * iteration_seconds(one))
    assert start_seconds(one) < start_seconds(many) < 3 * start_seconds(one)


def test_several_agents_pass_if_one_alone_does_and_they_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    fails: dict[str, str] = {}

    def measure(proofs: list[str], tick: Any) -> dict[str, str]:
        asked.extend(proofs)
        return {proof: fails.get(proof, "pass") for proof in proofs}

    monkeypatch.setattr(gate, "measure", measure)
    monkeypatch.setattr(gate, "_remembered", lambda file: {})
    monkeypatch.setattr(gate.caches, "keep", lambda *given: None)
    one, many = cell().proof, cell(members=8).proof
    assert gate.verdicts([many], {}) == {many: "pass"}
    assert sorted(asked) == [one, many], "each is measured once, also for a study that has both"
    fails[one] = "fail: L2 weight off by 1e-3"
    assert gate.verdicts([many, one], {}) == {many: fails[one], one: fails[one]}
    fails.clear()
    fails[many] = "fail: L4 weight off by 1e-3"
    assert gate.verdicts([many, one], {}) == {many: fails[many], one: "pass"}


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["phase", "iteration"])
@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_the_gate_proves_members_of_every_algorithm_in_the_unit_that_is_timed(algorithm: str, unit: str) -> None:
    rows = list(prove(f"{algorithm}/purejax/jit/{unit}/mlp/float32/framework/population"))
    assert rows
    assert all(row.ok for row in rows), [row for row in rows if not row.ok]
    assert {row.level for row in rows} == {"L4"}
    assert all(row.quantity.endswith(f"jit/{unit}/population") for row in rows)
