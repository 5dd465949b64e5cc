"""Members on several devices: the same numbers, and nothing sent between devices."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import TINY

from benchback.cli.populations import even_share
from benchback.errors import InputError
from benchback.population.devices import check_even, mesh_of
from benchback.population.spec import Population, members_of
from benchback.population.training import train_members
from benchback.training.run import Run

RUN = Run(replace(TINY, num_epochs=1, num_minibatches=1, hidden_sizes=(4,)), backend="purejax", unit="iteration")

SETTING = """
import json, re, jax, numpy as np
from benchback.population.training import built, hyper_of, keys_of, train_members
from benchback.population.halving import Rung, train_halving
from benchback.population.spec import Members
from benchback.training.run import Run

RUN = Run.from_dict(json.loads({run!r}))
MEMBERS = Members(tuple(range(16)), {{"learning_rate": tuple(np.geomspace(1e-4, 1e-1, 16))}})

def furthest(ours, theirs):
    assert ours.keys() == theirs.keys()
    return max(float(np.abs(np.asarray(ours[k], float) - np.asarray(x, float)).max()) for k, x in theirs.items())
"""
ONE_AND_EIGHT = """
def trained(devices):
    single, many, backend = built(RUN, 16, 2, devices)
    state = many.init(keys_of(single, MEMBERS), hyper_of(single, MEMBERS))
    program = many.iterate.lower(state).compile()
    for _ in range(3):
        state, metrics = program(state)
    return many.export(state), program.as_text(), state

one, _, _ = trained(1)
eight, text, state = trained(8)
part = jax.tree.leaves(state)[0].addressable_shards
print(json.dumps({
    "deviation": furthest(one, eight),
    "sent": re.findall("all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter", text),
    "shards": [list(shard.data.shape[:1]) for shard in part],
    "devices": len({shard.device.id for shard in part}),
}))
"""
HALVED = """
def halved(devices):
    rungs = (Rung(2, 5), Rung(4, 2))
    *_, last = train_halving(RUN, MEMBERS, rungs=rungs, seeds=1, group=2, devices=devices)
    return last
one, two = halved(1), halved(2)
weights = one.export()
active = weights["search/active"]
same = furthest({k: x[active] for k, x in weights.items()}, {k: x[active] for k, x in two.export().items()})
print(json.dumps({"deviation": same, "left": int(active.sum())}))
"""


def on_devices(code: str, count: int) -> dict:
    """What a fresh process with so many CPU devices prints."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    code = SETTING.format(run=json.dumps(RUN.to_dict())) + code
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_members_on_eight_devices_are_those_on_one_and_nothing_is_sent() -> None:
    found = on_devices(ONE_AND_EIGHT, 8)
    assert found["deviation"] < 1e-6
    assert found["sent"] == []
    assert (found["shards"], found["devices"]) == ([[2]] * 8, 8)


@pytest.mark.slow
def test_survivors_are_dealt_out_to_the_devices() -> None:
    found = on_devices(HALVED, 2)
    assert found["deviation"] < 1e-6
    assert found["left"] == 2


def test_devices_that_are_not_there_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"--devices 8: there are 1 \(cpu\).*device_count=8"):
        train_members(RUN, members_of(Population(seeds=8), RUN), devices=8)
    with pytest.raises(InputError, match="--devices 0 must be at least 1"):
        Population(seeds=8, devices=0)
    with pytest.raises(InputError, match="choose 1 to 1"):
        mesh_of(2)


@pytest.mark.parametrize(("size", "devices", "remedy"), [(10, 4, "e.g. 8 members"), (3, 4, "e.g. 4 members")])
def test_members_that_do_not_divide_evenly_are_refused_with_the_remedy(size: int, devices: int, remedy: str) -> None:
    with pytest.raises(InputError, match=f"do not divide {size} members evenly.*{remedy}"):
        check_even(size, devices)
    check_even(8, 4)


@pytest.mark.parametrize(("members", "processors"), [(8, 4), (6, 3), (7, 1), (2, 2)])
def test_members_are_divided_over_as_many_processors_as_divide_them(
    members: int, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert even_share(members) == processors


DIVIDED = """
import os, sys
os.sched_getaffinity = lambda _: {0, 1}
from benchback.cli.training import train
sizes = "--num-envs 2 --num-steps 4 --num-minibatches 1 --num-epochs 1 --hidden-sizes 4 --backend purejax".split()
code = train(["ppo", "--seeds", "4", "--num-iterations", "2", "--out", sys.argv[1], *sizes])
import jax
print(code, len(jax.devices()))
"""


@pytest.mark.slow
def test_on_a_cpu_all_processors_are_used_and_told(tmp_path: Path) -> None:
    given = [sys.executable, "-c", DIVIDED, str(tmp_path / "run")]
    done = subprocess.run(given, env=os.environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 2", done.stderr
    assert "divided over 2 CPU devices" in done.stderr
    assert "devices: 2" in (tmp_path / "run" / "population.yaml").read_text()
