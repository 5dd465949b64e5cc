"""PyTorch's side of the contract: modes that engage and change no number, the bridge, states, seeds.

What compiles runs in a process of its own, without the shape checks of the other tests: those would be
compiled, too.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch

from benchback import envs
from benchback.agent import Agent, Weights, start
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch
from benchback.algorithms.ppo.pytorch import State, make
from benchback.backends.pytorch import backend
from benchback.envs import bridge, gymnax
from benchback.errors import InputError

NATIVE, BRIDGED = "torch/CartPole-v1", "gymnax/CartPole-v1"

TRAIN = """
import json, sys, warnings
warnings.simplefilter("error")
import numpy as np, torch
from benchback import envs
from benchback.agent import start
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.pytorch import make
from benchback.backends.pytorch import backend

torch.set_num_threads(1)
config = Config(num_envs=4, num_steps=8, num_minibatches=2, num_epochs=2, num_iterations=6, hidden_sizes=(8, 8))
report = {}
for id in json.loads(sys.argv[1]):
    agent = make(config, envs.make(id, config.num_envs, "torch"))
    for mode in json.loads(sys.argv[2]):
        executed = backend.modes[mode](agent)
        state, compiles = start(executed, 3), [backend.compiles()]
        for iteration in range(4):
            if iteration == 3:  # floats are data: from here on with other ones
                state.hyper = state.hyper._replace(clip=torch.tensor(0.01), learning_rate=torch.tensor(0.01))
            state, batch = executed.rollout(state)
            state, metrics = executed.update(state, batch)
            compiles.append(backend.compiles())
        resumed = start(executed, 0, executed.export(state))
        executed.update(*executed.rollout(resumed))
        compiles.append(backend.compiles())
        metrics = {name: float(x) for name, x in backend.fetch(metrics).items()}
        weights = {name: x.astype(float).tolist() for name, x in executed.export(state).items() if name != "rng"}
        report[f"{id} {mode}"] = {
            "compiles": np.diff(compiles).tolist(), "metrics": metrics, "weights": weights,
        }
    report[f"{id} imports"] = [name for name in ("jax", "torch._dynamo", "torch._inductor") if name in sys.modules]
print(json.dumps(report))
"""

WITHOUT_JAX = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "flax", "optax", "gymnax"):
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(script: str, *arguments: str) -> Any:
    """What the script prints as JSON, run in a fresh interpreter."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Four iterations in every mode but `cudagraphs`, the last with other hyper-parameters, and one after resuming."""
    return run(TRAIN, json.dumps([BRIDGED, NATIVE]), json.dumps(["none", "env_jit", "script", "compile"]))


@pytest.fixture(params=[NATIVE, BRIDGED])
def agent(request: pytest.FixtureRequest, tiny: Config) -> Agent:
    return make(tiny, envs.make(request.param, tiny.num_envs, "torch"))


def trained(agent: Agent, state: State, iterations: int) -> tuple[State, dict[str, float]]:
    for _ in range(iterations):
        state, batch = agent.rollout(state)
        state, metrics = agent.update(state, batch)
    return state, fetched(metrics)


def fetched(metrics: Any) -> dict[str, float]:
    return {name: float(x) for name, x in backend.fetch(metrics).items()}


def equal(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("mode", ["env_jit", "script", "compile"])
@pytest.mark.parametrize("id", [NATIVE, BRIDGED])
def test_a_mode_changes_no_number(report: dict[str, Any], id: str, mode: str) -> None:
    base, other = report[f"{id} none"], report[f"{id} {mode}"]
    assert other["metrics"] == pytest.approx(base["metrics"], rel=1e-5, abs=1e-6, nan_ok=True)
    assert other["weights"].keys() == base["weights"].keys()
    for name, x in base["weights"].items():
        np.testing.assert_allclose(other["weights"][name], x, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("id", "graphs"), [(BRIDGED, 2), (NATIVE, 1)])
def test_compile_engages_at_first_and_never_again(report: dict[str, Any], id: str, graphs: int) -> None:
    """Programs: the values and a gradient step, which both environments share, and acting.

    Neither other floats nor a resumed state compile anything.
    """
    assert report[f"{id} compile"]["compiles"] == [graphs, 0, 0, 0, 0]


@pytest.mark.parametrize("id", [NATIVE, BRIDGED])
def test_script_engages_at_first_and_once_for_each_model(report: dict[str, Any], id: str) -> None:
    """Acting, the values and the objective; a trace holds its model, so a resumed state has its own."""
    assert report[f"{id} script"]["compiles"] == [3, 0, 0, 0, 3]


@pytest.mark.parametrize("mode", ["none", "env_jit"])
@pytest.mark.parametrize("id", [NATIVE, BRIDGED])
def test_torch_compiles_nothing_in_eager_modes(report: dict[str, Any], id: str, mode: str) -> None:
    assert report[f"{id} {mode}"]["compiles"] == [0, 0, 0, 0, 0]


def test_hyper_parameters_changed_in_the_state_take_effect(agent: Agent) -> None:
    changed = []
    for clip in (0.2, 1e-6):
        state = start(agent, 0)
        state.hyper = state.hyper._replace(clip=torch.tensor(clip))
        changed.append(trained(agent, state, 2)[1]["clip_fraction"])
    assert changed[0] != changed[1]


def test_everything_works_where_jax_is_not_installed() -> None:
    report = run(WITHOUT_JAX + TRAIN, json.dumps([NATIVE]), json.dumps(["none"]))
    assert report[f"{NATIVE} imports"] == []
    assert np.isfinite(report[f"{NATIVE} none"]["metrics"]["loss"])


def test_cudagraphs_are_refused_where_there_is_no_gpu(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="mode=cudagraphs needs a CUDA device"):
        backend.modes["cudagraphs"](agent)


def test_an_iteration_is_a_rollout_and_an_update(agent: Agent) -> None:
    whole = backend.modes["env_jit"](backend.units["iteration"](agent, 1))
    assert whole.iterate is not None
    state, metrics = whole.iterate(start(whole, 0))
    expected_state, expected = trained(agent, start(agent, 0), 1)
    assert fetched(metrics) == pytest.approx(expected, nan_ok=True)
    assert equal(whole.export(state), agent.export(expected_state))


NO_CHUNK = """
import json, torch
from torch._higher_order_ops.scan import scan

torch._dynamo.config.trace_autograd_ops = True
model, row = torch.nn.Linear(4, 1), torch.randn(5, 8, 4)

def draw(generator):
    return torch.rand(3, generator=generator)

def learn(model, row):
    def step(count, x):
        gradient = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        with torch.no_grad():
            for parameter, g in zip(model.parameters(), gradient):
                parameter.sub_(0.1 * g)
        return [count[0] + 1], [g.clone()]
    return scan(step, [torch.zeros(())], row)

said = []
for function, arguments in ((draw, (torch.Generator(),)), (learn, (model, row))):
    try:
        torch.compile(function, fullgraph=True, backend="eager")(*arguments)
        said.append("compiled")
    except Exception as error:
        said.append(str(error))
print(json.dumps(said))
"""


@pytest.mark.slow
def test_why_there_is_no_unit_chunk() -> None:
    """docs/performance.md gives these two reasons; a version of torch without them could have the unit."""
    drawing, learning = run(NO_CHUNK)
    assert "Failed to convert args/kwargs to proxy" in drawing
    assert "Higher order ops do not support input mutation" in learning


def test_equal_seeds_reproduce_bit_for_bit_and_others_differ(agent: Agent) -> None:
    first, again, other = (agent.export(trained(agent, start(agent, seed), 2)[0]) for seed in (5, 5, 6))
    assert equal(first, again)
    assert not any(np.array_equal(first[name], other[name]) for name in first if name.endswith("kernel"))


def test_the_global_random_stream_is_left_alone(agent: Agent) -> None:
    before = torch.get_rng_state()
    trained(agent, start(agent, 0), 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_exported_state_resumes_bit_for_bit(agent: Agent) -> None:
    state, _ = trained(agent, start(agent, 0), 2)
    resumed = start(agent, 99, agent.export(state))
    assert equal(agent.export(resumed), agent.export(state))
    assert equal(agent.export(trained(agent, resumed, 2)[0]), agent.export(trained(agent, state, 2)[0]))


def test_weights_without_environment_start_those_afresh(agent: Agent) -> None:
    weights = agent.export(trained(agent, start(agent, 0), 1)[0])
    network = {name: x for name, x in weights.items() if not name.startswith(("env/", "rng"))}
    started = agent.export(start(agent, 7, network))
    assert all(np.array_equal(started[name], x) for name, x in network.items())
    fresh = agent.export(start(agent, 7))
    assert all(np.array_equal(started[name], fresh[name]) for name in fresh if name.startswith(("env/", "rng")))


def test_an_export_is_a_copy(agent: Agent) -> None:
    state, _ = trained(agent, start(agent, 0), 1)
    export = agent.export(state)
    kept = {name: x.copy() for name, x in export.items()}
    trained(agent, state, 1)
    assert equal(export, kept)
    assert all(x.flags.owndata or x.base is None for x in export.values())


def test_kernels_are_exported_input_first(agent: Agent, tiny: Config) -> None:
    state = start(agent, 0)
    kernel = agent.export(state)["actor/0/kernel"]
    assert kernel.shape == (4, tiny.hidden[0])
    np.testing.assert_array_equal(kernel, state.model.actor[0].weight.detach().numpy().T)


def test_a_gradient_step_asks_nothing_of_the_device(tiny: Config) -> None:
    """Meta tensors have no values: whatever waits for one or branches on it fails."""
    agent = make(tiny, envs.make(NATIVE, tiny.num_envs, "torch"))
    state = start(agent, 0)
    state.model.to("meta")
    state.adam = type(state.adam)(*(x.to("meta") for x in state.adam))
    state.hyper = type(state.hyper)(*(x.to("meta") for x in state.hyper))
    row = torch.zeros(6, device="meta")
    minibatch = Minibatch(torch.zeros(6, 4, device="meta"), row.long(), row, row, row, row)
    _, metrics = agent.learn(state, minibatch)
    assert {x.device.type for x in metrics.values()} == {"meta"}


def test_a_batch_can_be_learnt_from_directly(agent: Agent, tiny: Config) -> None:
    """Rollouts run in inference mode, whose tensors autograd refuses: none of those may get out."""
    state, batch = agent.rollout(start(agent, 0))
    fields = (batch.obs, batch.action, batch.log_prob, batch.value, batch.value, batch.reward)
    minibatch = Minibatch(*(x.flatten(0, 1) for x in fields))
    _, metrics = agent.learn(state, minibatch)
    assert np.isfinite(fetched(metrics)["grad_norm"])


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar"])
def test_observations_cross_the_bridge_without_a_copy(name: str) -> None:
    env = envs.make(f"gymnax/{name}", 4, "torch")
    generator = env.random(0)
    state = env.reset(generator)
    state, _ = env.step(state, torch.zeros(4, dtype=torch.long), env.draw(generator, 1)[0])
    array = state.inner.state.obs
    assert state.obs.data_ptr() == array.unsafe_buffer_pointer()
    np.testing.assert_array_equal(state.obs.numpy(), np.asarray(array))
    assert state.obs.dtype == (torch.bool if name == "Breakout-MinAtar" else torch.float32)


@pytest.mark.parametrize("way", [lambda env: env, bridge.eager], ids=["jit", "eager"])
def test_the_bridge_serves_what_the_jax_environment_computes(way: Callable[[Any], Any]) -> None:
    num_envs, num_steps = 4, 40
    source = gymnax.make("CartPole-v1", num_envs)
    env = way(envs.make(BRIDGED, num_envs, "torch"))
    generator = env.random(0)
    state = env.reset(generator)
    theirs, step_theirs = state.inner.state, jax.jit(source.step)
    for noise in env.draw(generator, num_steps):
        action = torch.randint(2, (num_envs,), generator=generator)
        state, outcome = env.step(state, action, noise)
        raw, t = noise
        theirs, expected = step_theirs(theirs, action.numpy(), jax.random.wrap_key_data(raw[t]))
        for name, x, y in zip(outcome._fields, outcome, expected, strict=True):
            np.testing.assert_allclose(x.numpy(), y, rtol=1e-6, atol=1e-6, err_msg=name)


def test_bridged_noise_follows_the_generator() -> None:
    env = envs.make(BRIDGED, 4, "torch")
    generator = env.random(0)
    first, second, again = env.draw(generator, 3), env.draw(generator, 3), env.draw(env.random(0), 3)
    words = {np.asarray(raw[t]).tobytes() for raw, t in (*first, *second)}
    assert len(words) == 6
    assert words >= {np.asarray(raw[t]).tobytes() for raw, t in again}


def test_a_bridged_environment_names_its_state_as_the_jax_family_does() -> None:
    agent = make(Config(num_envs=4), envs.make(BRIDGED, 4, "torch"))
    names = {name for name in agent.export(start(agent, 0)) if name.startswith("env/")}
    inner = {f"env/inner/{name}" for name in ("time", "x", "x_dot", "theta", "theta_dot")}
    assert names == inner | {"env/obs", "env/episode_return", "env/episode_length"}


def test_fetch_keeps_names_types_and_shapes() -> None:
    tree = {"a": torch.tensor(3), "b": torch.tensor([True, False]), "c": torch.tensor([[0.1]])}
    arrays = backend.fetch(tree)
    assert {name: (x.dtype.name, x.shape) for name, x in arrays.items()} == {
        "a": ("int64", ()),
        "b": ("bool", (2,)),
        "c": ("float32", (1, 1)),
    }
    assert arrays["c"] == np.float32(0.1)


def test_fetch_rounds_no_integer() -> None:
    counts = torch.tensor([2**53 + 1, -(2**62) - 1])
    assert backend.fetch((counts,))[0].tolist() == [2**53 + 1, -(2**62) - 1]


def test_fetched_arrays_are_copies() -> None:
    live = torch.zeros(2)
    fetched = backend.fetch({"live": live})
    live += 1
    assert fetched["live"].tolist() == [0, 0]
