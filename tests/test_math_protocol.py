"""Both twins of the maths are what the Protocol says, and shapes are checked where the equations are."""

import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from conftest import TINY
from jaxtyping import Float, Int, TypeCheckError, jaxtyped

from benchback import envs, registry
from benchback.agent import start
from benchback.algorithms.dqn import loss as dqn
from benchback.algorithms.offpolicy import to_experience
from benchback.algorithms.onpolicy import Transition, bootstrap, to_transitions
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch, make_training_batch, ppo_loss
from benchback.algorithms.td3 import loss as td3
from benchback.algorithms.vpg import config as vpg_config
from benchback.algorithms.vpg import loss as vpg
from benchback.math import jax as jax_math
from benchback.math import records
from benchback.math import torch as torch_math
from benchback.math.protocol import Categorical, Gaussian, Math

TWINS: dict[str, Any] = {"jax": jax_math, "torch": torch_math}
PARTS = {"": Math, "categorical": Categorical, "gaussian": Gaussian}
"""Where a twin keeps it -> what it must be there."""
EACH_ITS_OWN = {"adam", "AdamState"}
RECORDS = {"ActingNoise", "Bounds", "Moments", "Replay"}

twins = pytest.mark.parametrize("twin", TWINS)


# The twins and the Protocol.


def members(protocol: type) -> set[str]:
    return {name for name in dir(protocol) if not name.startswith("_")}


def written(annotation: Any) -> Any:
    """An annotation without the framework's name: `Float "T E"`; what is no array, as it is."""
    if hasattr(annotation, "dim_str"):
        return f'{annotation.dtype.__name__} "{annotation.dim_str}"'
    return annotation


CHOICES = {
    records.Random: {'Key ""', torch.Generator},
    records.DType: {np.dtype, torch.dtype},
    records.Count: {'Int ""', int},
    records.Index: {'Int "..."', 'Int "B"'},
}
"""What a twin may say where the Protocol leaves it to the framework."""


def disagree(declared: Any, found: Any) -> bool:
    return written(found) not in CHOICES.get(declared, {written(declared)})


def differences(protocol: type, twin: Any) -> list[str]:
    """What the twin says otherwise than the Protocol: names, kinds and defaults of arguments, types, shapes."""
    result = []
    for name in sorted(members(protocol)):
        if isinstance(getattr(protocol, name), property):
            continue
        if not hasattr(twin, name):
            result.append(f"{name} is missing")
            continue
        declared = inspect.signature(getattr(protocol, name))
        found = inspect.signature(getattr(twin, name))
        ours, theirs = list(declared.parameters.values())[1:], list(found.parameters.values())
        if len(ours) != len(theirs):
            result.append(f"{name} takes {len(theirs)} arguments")
        if disagree(declared.return_annotation, found.return_annotation):
            result.append(f"{name} returns {written(found.return_annotation)}")
        result += [f"{name}: {x}" for pair in zip(ours, theirs, strict=False) for x in differing(*pair)]
    return result


def differing(declared: inspect.Parameter, found: inspect.Parameter) -> list[str]:
    nameless = declared.kind is inspect.Parameter.POSITIONAL_ONLY
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if nameless else declared.kind
    checks = {
        "name": not nameless and found.name != declared.name,
        "kind": found.kind is not kind,
        "default": found.default is not declared.default,
        "type": disagree(declared.annotation, found.annotation),
    }
    return [f"{what} of {found}" for what, differs in checks.items() if differs]


@twins
@pytest.mark.parametrize("part", PARTS)
def test_twins_are_what_the_protocol_says(twin: str, part: str) -> None:
    found = getattr(TWINS[twin], part) if part else TWINS[twin]
    assert isinstance(found, PARTS[part])
    assert differences(PARTS[part], found) == []


@twins
def test_the_protocol_leaves_nothing_public_out(twin: str) -> None:
    assert set(TWINS[twin].__all__) == members(Math) | EACH_ITS_OWN | RECORDS
    assert all(getattr(TWINS[twin], name) is getattr(records, name) for name in RECORDS)
    for part in ("categorical", "gaussian"):
        functions = inspect.getmembers(getattr(TWINS[twin], part), inspect.isfunction)
        assert {name for name, _ in functions} == members(PARTS[part])


def test_twins_make_adam_from_the_same_arguments() -> None:
    ours, theirs = (inspect.signature(twin.adam).parameters for twin in TWINS.values())
    assert list(ours.values()) == list(theirs.values())


NOTHING: Any = None


def renamed(y: Float[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]: ...
def reshaped(x: Float[torch.Tensor, "B 1"]) -> Float[torch.Tensor, "B"]: ...
def retyped(x: Int[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]: ...
def reduced(x: Float[torch.Tensor, "B"]) -> Float[torch.Tensor, ""]: ...
def unshaped(x: Any) -> Float[torch.Tensor, "B"]: ...
def keyword_only(*, x: Float[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]: ...
def with_default(x: Float[torch.Tensor, "B"] = NOTHING) -> Float[torch.Tensor, "B"]: ...
def with_option(x: Float[torch.Tensor, "B"], axis: int = 0) -> Float[torch.Tensor, "B"]: ...
def unchanged(x: Float[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]: ...


@pytest.mark.parametrize(
    ("mutant", "named"),
    [
        (renamed, ["standardise: name of y"]),
        (reshaped, ["standardise: type of x"]),
        (retyped, ["standardise: type of x"]),
        (unshaped, ["standardise: type of x"]),
        (reduced, ['standardise returns Float ""']),
        (keyword_only, ["standardise: kind of x"]),
        (with_default, ["standardise: default of x"]),
        (with_option, ["standardise takes 2 arguments"]),
        (unchanged, []),
    ],
)
@twins
def test_a_twin_that_changes_a_function_is_told(twin: str, mutant: Callable[..., Any], named: list[str]) -> None:
    changed = SimpleNamespace(**{**vars(TWINS[twin]), "standardise": mutant})
    found = differences(Math, changed)
    assert len(found) == len(named)
    assert all(x.startswith(beginning) for x, beginning in zip(found, named, strict=True))


@twins
def test_a_twin_that_lacks_a_function_or_mistakes_a_distribution_is_told(twin: str) -> None:
    less = SimpleNamespace(**{name: x for name, x in vars(TWINS[twin]).items() if name != "gae"})
    assert differences(Math, less) == ["gae is missing"]
    assert not isinstance(less, Math)
    assert "log_prob: name of params" in " ".join(differences(Categorical, TWINS[twin].gaussian))


# Shapes, where code is written once for all backends.

B, A = 6, 3


def place(twin: str, x: Any) -> Any:
    return jnp.asarray(x) if twin == "jax" else torch.tensor(x)


def arguments(twin: str, distribution: str) -> SimpleNamespace:
    """Arrays for the loss of any algorithm, by name."""
    random = np.random.default_rng(0)
    rows = ["value", "value1", "value2", "old_value", "log_prob", "advantage", "target", "reward"]
    sizes = {"q": A, "next_q": A, "online_q": A, "noise": A, "obs": 4}
    sizes["policy_params"] = A if distribution == "categorical" else 2 * A
    arrays: dict[str, Any] = {name: random.normal(size=B).astype(np.float32) for name in rows}
    arrays |= {name: random.normal(size=(B, size)).astype(np.float32) for name, size in sizes.items()}
    discrete = random.integers(A, size=B).astype(np.int32)
    arrays["action"] = discrete if distribution == "categorical" else arrays["noise"]
    arrays["terminated"] = discrete > 1
    return SimpleNamespace(**{name: place(twin, x) for name, x in arrays.items()})


def hyper(twin: str, config: Any) -> Any:
    return type(config.hyper)(*(place(twin, np.float32(x)) for x in config.hyper))


def ppo(twin: str, distribution: str, x: SimpleNamespace) -> Any:
    math, config = TWINS[twin], Config()
    minibatch = Minibatch(x.obs, x.action, x.log_prob, x.old_value, x.advantage, x.target)
    of_actions = getattr(math, distribution)
    return ppo_loss(math, of_actions, x.policy_params, x.value, minibatch, hyper(twin, config), config)[0]


def vpg_policy(twin: str, distribution: str, x: SimpleNamespace) -> Any:
    math, minibatch = TWINS[twin], vpg.Minibatch(x.obs, x.action, x.log_prob, x.advantage, x.target)
    change = vpg.policy_change(math, getattr(math, distribution), x.policy_params, minibatch)
    loss, _ = vpg.policy_loss(math, getattr(math, distribution), x.policy_params, minibatch)
    return loss + change["approximate_kl"]


def vpg_value(twin: str, distribution: str, x: SimpleNamespace) -> Any:
    return vpg.value_loss(x.value, vpg.Minibatch(x.obs, x.action, x.log_prob, x.advantage, x.target))[0]


def dqn_of_td_target(twin: str, distribution: str, x: SimpleNamespace) -> Any:
    minibatch = dqn.Minibatch(x.obs, x.action, x.reward, x.obs, x.terminated)
    target = dqn.td_target(TWINS[twin], x.next_q, x.online_q, minibatch, hyper(twin, dqn.Config()))
    return dqn.dqn_loss(TWINS[twin], x.q, target, minibatch)[0]


def td3_critic(twin: str, distribution: str, x: SimpleNamespace) -> Any:
    return td3.critic_loss((x.value1, x.value2), x.target)[0]


def td3_actor(twin: str, distribution: str, x: SimpleNamespace) -> Any:
    return td3.actor_loss(x.value1)[0]


LOSSES = {
    ppo: "policy_params value action log_prob old_value advantage target",
    vpg_policy: "policy_params action log_prob advantage",
    vpg_value: "value",
    dqn_of_td_target: "q next_q online_q action reward terminated",
    td3_critic: "value1 value2 target",
    td3_actor: "value1",
}
"""Loss -> what it computes with."""
CASES = [
    (loss, distribution, name)
    for loss, names in LOSSES.items()
    for distribution in ("categorical", *(["gaussian"] if "policy_params" in names else []))
    for name in names.split()
]


@twins
@pytest.mark.parametrize(("loss", "distribution", "name"), CASES)
def test_a_loss_refuses_a_wrong_shape(twin: str, loss: Callable[..., Any], distribution: str, name: str) -> None:
    """A trailing axis of one is the classic: without a check, `[B] - [B, 1]` is `[B, B]`, and its mean a loss."""
    x = arguments(twin, distribution)
    assert np.isfinite(float(loss(twin, distribution, x)))
    setattr(x, name, getattr(x, name)[..., None])
    with pytest.raises(TypeCheckError):
        loss(twin, distribution, x)


@twins
def test_a_loss_refuses_integers_for_values_and_what_is_no_maths(twin: str) -> None:
    x = arguments(twin, "categorical")
    with pytest.raises(TypeCheckError):
        ppo(twin, "categorical", SimpleNamespace(**{**vars(x), "value": x.action}))
    minibatch = vpg.Minibatch(x.obs, x.action, x.log_prob, x.advantage, x.target)
    wrong: Any = ((np, TWINS[twin].categorical), (TWINS[twin], TWINS[twin]))
    for math, distribution in wrong:
        with pytest.raises(TypeCheckError):
            vpg.policy_loss(math, distribution, x.policy_params, minibatch)


@twins
def test_what_is_shared_by_on_policy_algorithms_refuses_a_wrong_shape(twin: str) -> None:
    x = place(twin, np.zeros((4, 3), np.float32))
    flag = x > 0
    step: Any = SimpleNamespace(reward=x, terminated=flag, truncated=flag, episode_return=x, episode_length=x)
    batch = Transition(x, x, x, x, x, flag, flag, x, x, x)
    bootstrap(TWINS[twin], batch, x[0], "bootstrap")
    for last_value in (x, x[0, :2]):
        with pytest.raises(TypeCheckError):
            bootstrap(TWINS[twin], batch, last_value, "bootstrap")
    with pytest.raises(TypeCheckError):
        make_training_batch(batch, x[0])
    with pytest.raises(TypeCheckError):
        to_transitions(x, x, x, x, x[:-1], step)


# Records hold what their fields say.


def misshapen(*rows: Any) -> list[str]:
    """Fields whose kind or shape is not the declared one; an axis has one length in all fields of all records."""
    with jaxtyped("context"):
        return [
            name
            for record in rows
            for name, declared in inspect.get_annotations(type(record)).items()
            if not isinstance(getattr(record, name), declared)
        ]


CONFIGS = {
    "ppo": TINY,
    "vpg": vpg_config.Config(num_envs=4, num_steps=8, hidden_sizes=(8,)),
    "dqn": dqn.Config(num_envs=4, num_steps=8, hidden_sizes=(8,)),
    "td3": td3.Config(num_envs=4, num_steps=8, hidden_sizes=(8,)),
}


def training_rows(algorithm: str, batch: Any, config: Any) -> Any:
    """What a rollout becomes before it is learnt from."""
    if algorithm == "ppo":
        return make_training_batch(batch, batch.value)
    if algorithm == "vpg":
        return vpg.make_training_batch(batch, batch.value, batch.value)
    return to_experience(batch, config)


def rolled_out(algorithm: str, backend: str, env: str) -> tuple[Any, Any]:
    make, _ = registry.load(algorithm, backend)
    config = CONFIGS[algorithm]
    agent = make(config, envs.make(env, config.num_envs, registry.BACKENDS[backend].family))

    def records_of(state: Any) -> tuple[Any, Any]:
        _, batch = agent.rollout(state)
        return batch, training_rows(algorithm, batch, config)

    state = start(agent, 0)
    return jax.eval_shape(records_of, state) if backend != "pytorch" else records_of(state)


@pytest.mark.parametrize("backend", ["purejax", "pytorch"])
@pytest.mark.parametrize(
    ("algorithm", "env"),
    [(a, f"gymnax/{env}") for a in ("ppo", "vpg") for env in ("CartPole-v1", "Pendulum-v1")]
    + [("dqn", "gymnax/CartPole-v1"), ("td3", "gymnax/Pendulum-v1")],
)
def test_records_of_a_rollout_have_the_declared_shapes(algorithm: str, backend: str, env: str) -> None:
    batch, rows = rolled_out(algorithm, backend, env)
    assert misshapen(batch, rows) == []
    assert batch.reward.shape == (8, 4)
    assert misshapen(batch._replace(reward=batch.terminated)) == ["reward"]
    assert misshapen(batch._replace(truncated=rows.obs)) == ["truncated"]


def test_the_protocol_names_no_framework() -> None:
    for module in (records, inspect.getmodule(Math)):
        assert isinstance(module, ModuleType)
        assert not {"jax", "torch", "numpy"} & {name.split(".")[0] for name in imported(module)}


def imported(module: ModuleType) -> list[str]:
    source = inspect.getsource(module).splitlines()
    return [line.split()[1] for line in source if line.startswith(("import ", "from "))]
