"""The library: what `import benchback as bb` offers, on real trainings that are tiny."""

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars
import pytest
from campaign_double import HOOKS
from campaign_double import STUDY as DOUBLE
from test_advise import usual

import benchback as bb
from benchback import registry
from benchback.agent import networks, start
from benchback.measure.store import open_store
from benchback.training import checkpoint, run_dir
from benchback.training.acting import Actor, parameters
from benchback.training.evaluate import greedy_agent

TINY: dict[str, Any] = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "num_epochs": 1, "num_iterations": 6}
TINY |= {"backend": "purejax", "unit": "iteration", "hidden_sizes": [8, 8], "learning_rate": 5e-3}
OBS = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
HERE = Path(__file__).parent
COMPARED = ("linen", "pytorch")
"""Backends that advice is asked about."""
EXPENSIVE = ("haiku",)
"""Frameworks that take seconds to import and have nothing that another has not."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api") / "run"


@pytest.fixture(scope="module")
def result(folder: Path) -> bb.Result:
    return bb.train("ppo", out=folder, evaluate_every=64, evaluate_episodes=2, **TINY)


@pytest.fixture(scope="module")
def many() -> bb.Results:
    return bb.train("ppo", seeds=2, vary={"learning_rate": [1e-3, 1e30]}, **TINY)


# The package


def test_importing_it_loads_no_framework_and_every_name_is_there() -> None:
    code = (
        "import sys, benchback as bb\n"
        "assert not {'jax', 'torch', 'numpy', 'polars'} & set(sys.modules), 'slow imports'\n"
        "assert {x for x in dir(bb) if x[0] != '_'} == set(bb.__all__)\n"
        "assert all(getattr(bb, name).__doc__ for name in bb.__all__)\n"
        "assert not {'jax', 'torch', 'flax', 'gymnax'} & set(sys.modules), 'frameworks'\n"
        "try: bb.nothing\n"
        "except AttributeError as error: assert 'nothing' in str(error)\n"
        "else: raise SystemExit('a name that does not exist')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (Path(bb.__file__).parent / "py.typed").exists()


# One agent


def test_a_training_returns_its_metrics_and_its_agent(result: bb.Result, folder: Path) -> None:
    assert result.returns.shape == (6,)
    assert result.metrics["env_steps"].to_list() == [32, 64, 96, 128, 160, 192]
    assert result.metrics["iteration"].dtype == polars.Int64
    assert result.weights["actor/0/kernel"].shape == (4, 8)
    assert set(result.weights) < set(checkpoint.read(folder / "checkpoint.safetensors").weights)
    assert (result.run.backend, result.run.config.learning_rate, result.iteration) == ("purejax", 5e-3, 6)
    assert result.evaluations["iteration"].to_list() == [2, 4, 6]
    assert result.best.evaluate(2).mean() == result.evaluations["return_mean"].max()


def test_without_a_folder_the_same_is_trained_and_nothing_is_left(
    result: bb.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bb.api.tempfile, "mkdtemp", lambda prefix: str(_made(tmp_path / "temporary")))
    monkeypatch.chdir(_made(tmp_path / "here"))
    again = bb.train(result.run)
    np.testing.assert_array_equal(again.returns, result.returns)
    assert again.evaluations.is_empty()
    saved = again.save(tmp_path / "saved")
    assert bb.load(saved).weights.keys() == result.weights.keys()
    with pytest.raises(bb.InputError, match="saved exists"):
        again.save(saved)
    del again
    gc.collect()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "saved"]
    assert not list((tmp_path / "here").iterdir())


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_callback_sees_every_iteration_and_can_stop(tmp_path: Path) -> None:
    seen: list[bb.Progress] = []

    def stop_third(progress: bb.Progress) -> bool:
        seen.append(progress)
        return progress.iteration == 3

    stopped = bb.train("ppo", callback=stop_third, **TINY)
    assert [(x.iteration, x.env_steps) for x in seen] == [(1, 32), (2, 64), (3, 96)]
    assert seen[0].metrics["policy_loss"] == stopped.metrics["policy_loss"][0]
    assert "env_steps" not in seen[0].metrics
    assert (stopped.iteration, stopped.reached) == (3, None)


def test_training_that_diverges_raises_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bb.api.tempfile, "mkdtemp", lambda prefix: str(_made(tmp_path / "temporary")))
    with pytest.raises(bb.Diverged, match=r"is not finite in iteration [0-9]+, so training stopped; try learning_rate"):
        bb.train(bb.Run.from_dict(TINY | {"learning_rate": 1e30}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bb.train("ppo", lerning_rate=1.0), "lerning_rate is not a field of a ppo run"),
        (lambda: bb.train("ppo", callbacks=print), r"callbacks is not .* did you mean callback\?"),
        (lambda: bb.train("pppo"), "did you mean ppo"),
        (lambda: bb.train("ppo", evaluate_every=0), "evaluate_every=0 must be at least 1"),
        (lambda: bb.train("ppo", seeds=2, evaluate_every=32, **TINY), "is about a single agent"),
        (lambda: bb.load("nowhere"), "nowhere is not a run folder"),
        (lambda: bb.weights("nowhere", "linen"), "nowhere is not a run folder"),
        (lambda: bb.read("nowhere.sqlite"), "nowhere.sqlite"),
        (lambda: bb.run("nothing"), "nothing"),
        (lambda: bb.advise(steps=float("nan")), "steps=nan must be at least 1"),
    ],
)
def test_mistakes_are_input_errors(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(bb.InputError, match=said):
        call()


# Many agents


def test_what_a_training_returns_is_named_by_what_was_trained(result: bb.Result, folder: Path) -> None:
    what = f"ppo in {result.run.backend} on {result.run.env}"
    assert repr(result) == f"<Result: {what}, {result.iteration} iterations>"
    assert repr(bb.load(folder)) == f"<Policy: {what}, {result.iteration} iterations>"


def test_a_video_has_a_name_of_its_own(result: bb.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (episode,) = result.play(max_steps=3)
    assert episode.steps == 3
    assert (tmp_path / "video.mp4").stat().st_size > 0


def test_a_population_has_a_member_axis(many: bb.Results) -> None:
    assert (len(many), many.returns.shape, many.array("policy_loss").shape) == (4, (4, 6), (4, 6))
    assert many.members.seed == (0, 1, 0, 1)
    assert many.members.values == {"learning_rate": (1e-3, 1e-3, 1e30, 1e30)}
    assert many.weights["actor/0/kernel"].shape == (4, 4, 8)
    assert list(many.diverged) == [2, 3]
    assert many.best in (0, 1)
    with pytest.raises(bb.InputError, match="metric=polcy_loss is unknown; did you mean policy_loss"):
        many.array("polcy_loss")


def test_a_member_is_the_run_alone(many: bb.Results, tmp_path: Path) -> None:
    alone = bb.train("ppo", **TINY | {"learning_rate": 1e-3, "seed": 1})
    member = many.member(1)
    assert member.run == alone.run
    np.testing.assert_allclose(member.returns, alone.returns)
    np.testing.assert_array_equal(member.returns, many.returns[1])
    np.testing.assert_array_equal(member.weights["actor/0/kernel"], many.weights["actor/0/kernel"][1])
    np.testing.assert_allclose(member.weights["critic/0/kernel"], alone.weights["critic/0/kernel"], atol=1e-5)
    saved = bb.load(f"{many.save(tmp_path / 'saved')}#1")
    np.testing.assert_array_equal(saved.weights["actor/0/kernel"], member.weights["actor/0/kernel"])
    with pytest.raises(bb.InputError, match="member=4 must be 0 to 3"):
        many.member(4)


# A trained agent


def forward(weights: dict[str, Any], obs: Any, tower: str = "actor") -> np.ndarray:
    """The network by hand, of canonical weights."""
    last = max(int(name.split("/")[1]) for name in weights if name.startswith(f"{tower}/"))
    for i in range(last):
        obs = np.tanh(obs @ weights[f"{tower}/{i}/kernel"] + weights[f"{tower}/{i}/bias"])
    return obs @ weights[f"{tower}/{last}/kernel"] + weights[f"{tower}/{last}/bias"]


def test_an_agent_acts_as_its_network_says(result: bb.Result, folder: Path) -> None:
    agent = bb.load(folder)
    expected = forward(agent.weights, OBS).argmax(-1)
    np.testing.assert_array_equal(agent.act(OBS), expected)
    one = agent.act(OBS[0].tolist())
    assert isinstance(one, np.ndarray)
    assert (one.shape, int(one)) == ((), expected[0])
    agent.reset()
    np.testing.assert_array_equal(agent.act(OBS), expected)
    with pytest.raises(bb.InputError, match=r"obs has the shape \(3,\); gymnax/CartPole-v1 has \(4,\)"):
        agent.act(np.zeros(3))
    np.testing.assert_array_equal(bb.load(folder / "best.safetensors").act(OBS), result.best.act(OBS))


def test_torch_acts_as_jax_does(result: bb.Result) -> None:
    run = replace(result.run, backend="pytorch", mode="none", unit="phase", env="torch/CartPole-v1")
    found = Actor(run, result.checkpoint.weights)(OBS)
    np.testing.assert_array_equal(found, result.act(OBS))


def test_actions_stay_within_the_bounds_of_the_environment() -> None:
    run = bb.Run.from_dict({"env": "gymnax/Pendulum-v1", "backend": "purejax", "hidden_sizes": [4]})
    far = {"actor/0/kernel": np.zeros((3, 4)), "actor/0/bias": np.zeros(4)}
    far |= {"actor/1/kernel": np.zeros((4, 1)), "actor/1/bias": np.full(1, 7.0), "log_std": np.zeros(1)}
    far |= {name.replace("actor", "critic"): x for name, x in far.items() if name.startswith("actor")}
    np.testing.assert_array_equal(Actor(run, far)(np.zeros((2, 3))), [[2.0], [2.0]])


# Networks in modules of one's own, written by hand


def linen_output(params: Any) -> Any:
    from flax import linen as nn

    class Mine(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for i in range(2):
                x = nn.tanh(nn.Dense(8, name=str(i))(x))
            return nn.Dense(2, name="2")(x)

    return Mine().apply({"params": params["actor"]}, OBS)


def nnx_output(state: Any) -> Any:
    from flax import nnx

    class Tower(nnx.Module):
        def __init__(self, outputs: int, rngs: nnx.Rngs) -> None:
            sizes = ((4, 8), (8, 8), (8, outputs))
            self.layers = nnx.List([nnx.Linear(*size, rngs=rngs) for size in sizes])

        def __call__(self, x: Any) -> Any:
            first, second, head = self.layers
            return head(nnx.tanh(second(nnx.tanh(first(x)))))

    class Mine(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.actor, self.critic = Tower(2, rngs), Tower(1, rngs)

    mine = Mine()
    nnx.update(mine, state)
    return mine.actor(jnp.asarray(OBS))


def equinox_output(module: Any) -> Any:
    import equinox as eqx

    class Mine(eqx.Module):
        layers: list[eqx.nn.Linear]

        def __call__(self, x: Any) -> Any:
            for layer in self.layers[:-1]:
                x = jnp.tanh(layer(x))
            return self.layers[-1](x)

    return jax.vmap(Mine(module.actor.layers))(OBS)


def haiku_output(params: Any) -> Any:
    import haiku as hk

    class Actor(hk.Module):
        def __call__(self, x: Any) -> Any:
            for i in range(2):
                x = jnp.tanh(hk.Linear(8, name=f"layer_{i}")(x))
            return hk.Linear(2, name="layer_2")(x)

    mine = hk.without_apply_rng(hk.transform(lambda x: Actor(name="actor")(x)))
    return mine.apply(params, OBS)


def purejax_output(params: Any) -> Any:
    x = OBS
    for layer in params.actor[:-1]:
        x = jnp.tanh(x @ layer["kernel"] + layer["bias"])
    return x @ params.actor[-1]["kernel"] + params.actor[-1]["bias"]


def pytorch_output(state: Any) -> Any:
    import torch
    from torch import nn

    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for tower, outputs in (("actor", 2), ("critic", 1)):
                layers = nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, outputs)
                self.add_module(tower, nn.Sequential(*layers))

    mine = Mine()
    mine.load_state_dict(state)
    with torch.no_grad():
        return mine.get_submodule("actor")(torch.as_tensor(OBS)).numpy()


@pytest.mark.parametrize(
    "framework", [pytest.param(x, marks=pytest.mark.slow) if x in EXPENSIVE else x for x in registry.BACKENDS]
)
def test_networks_are_used_in_a_module_of_ones_own(framework: str, result: bb.Result, folder: Path) -> None:
    found = globals()[f"{framework}_output"](bb.weights(folder, framework))
    np.testing.assert_allclose(np.asarray(found), forward(result.weights, OBS), rtol=1e-5, atol=1e-6)


def test_a_framework_may_be_named_by_its_module(folder: Path, result: bb.Result) -> None:
    state = bb.weights(folder, "torch")
    assert list(state)[:2] == ["actor.0.weight", "actor.0.bias"]
    with pytest.raises(bb.InputError, match="framework=flax is unknown"):
        bb.weights(folder, "flax")


@pytest.mark.slow
@pytest.mark.parametrize("framework", registry.BACKENDS)
@pytest.mark.parametrize("algorithm", registry.ALGORITHMS)
def test_every_algorithm_goes_to_every_framework(algorithm: str, framework: str) -> None:
    run = bb.Run.from_dict({"algorithm": algorithm, "backend": "purejax", "hidden_sizes": [8]})
    agent, _, _ = greedy_agent(run, 1)
    whole = agent.export(start(agent, 3))
    expected, found = networks(whole), parameters(run, whole, framework)
    leaves = [np.asarray(x) for x in (found.values() if framework == "pytorch" else jax.tree.leaves(found))]
    assert sorted(x.size for x in leaves) == sorted(x.size for x in expected.values())
    total, known = (sum(float(abs(x).sum()) for x in arrays) for arrays in (leaves, expected.values()))
    assert total == pytest.approx(known, rel=1e-5)


# The documentation, and the measurements in it


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names that all snippets of the documentation leave; trainings are tiny, and measurements by a model."""
    train, run, advise = bb.train, bb.run, bb.advise

    def run_small(study: Any, store: Any = None, **options: Any) -> bb.Frames:
        return run(study if isinstance(study, bb.Study) else DOUBLE, store, hooks=HOOKS, **options)

    small = {name: x for name, x in TINY.items() if name not in ("learning_rate", "backend")}
    snippets = re.findall(r"```python\n(.*?)```", (HERE.parent / "docs" / "library.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"count": len(snippets), "folder": tmp_path_factory.mktemp("documented")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(vars(bb), "train", lambda *given, **fields: train(*given, **fields | small))
        patched.setitem(vars(bb), "run", run_small)
        patched.setitem(vars(bb), "advise", partial(advise, backends=COMPARED, hooks=usual().hooks))
        patched.chdir(namespace["folder"])
        for snippet in snippets:
            exec(snippet, namespace)
    return namespace


@pytest.mark.slow
def test_every_snippet_of_the_documentation_runs(documented: dict[str, Any]) -> None:
    assert documented["count"] > 8
    assert run_dir.open_run(documented["folder"] / "runs" / "mine")[1].iteration == TINY["num_iterations"]
    assert documented["many"].returns.shape == (8, 6)


def test_a_study_is_run_within_its_budget_and_read_as_frames(documented: dict[str, Any]) -> None:
    path = documented["folder"] / "runs" / "smoke.sqlite"
    with open_store(path, readonly=True) as store:
        assert store.campaign()["study"]["budget_s"] == 300.0
    frames = bb.read(path)
    assert {"slot", "variant", "backend", "outcome"} <= set(frames.runs.columns)
    assert frames.samples.columns == ["slot", "attempt", "call", "name", "value"]
    assert set(frames.samples["slot"]) == set(frames.runs["slot"])
    assert {"variant", "reference", "figure"} <= set(frames.claims.columns)
    assert frames.claims.height > 0
    assert set(documented["frames"].runs["study"]) == {"mine"}


def test_advice_is_the_record_that_json_has(documented: dict[str, Any]) -> None:
    advice = documented["advice"]
    assert (advice["question"]["seeds"], advice["question"]["hidden"]) == (10, [256, 256])
    assert advice["candidates"][0]["variant"].startswith("linen/")
    assert {candidate["variant"].split("/")[0] for candidate in advice["candidates"]} == set(COMPARED)
    assert "Linen" in advice["sentence"]
