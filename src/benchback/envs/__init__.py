"""Environments by id, `suite/name`; importing this package imports no suite.

Two kinds of arrays: JAX environments serve the JAX family directly and PyTorch over DLPack; native
torch environments serve PyTorch alone, without JAX in the process.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import Literal

from benchback.envs.interface import Env
from benchback.errors import InputError

GYMNAX = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Asterix-MinAtar",
    "Breakout-MinAtar",
    "Freeway-MinAtar",
    "Seaquest-MinAtar",
    "SpaceInvaders-MinAtar",
    "Catch-bsuite",
    "DeepSea-bsuite",
    "DiscountingChain-bsuite",
    "MemoryChain-bsuite",
    "UmbrellaChain-bsuite",
    "SimpleBandit-bsuite",
    "BernoulliBandit-misc",
    "GaussianBandit-misc",
    "FourRooms-misc",
    "FrozenLake-misc",
    "MetaMaze-misc",
    "Pong-misc",
)
CONTINUOUS = (
    "Pendulum-v1",
    "MountainCarContinuous-v0",
    "PointRobot-misc",
    "Reacher-misc",
    "Swimmer-misc",
)
TORCH = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Breakout-MinAtar")
PROBES = ("OneStep", "TwoStep", "ActionReward", "ObsReward", "Truncated")
CONTINUOUS_PROBES = ("Target", "ObsTarget", "CutTarget")

SUITES = {"gymnax": (*GYMNAX, *CONTINUOUS), "torch": TORCH, "probe": (*PROBES, *CONTINUOUS_PROBES)}
"""Suite -> the names of its environments; a suite is the module of the same name."""


def ids() -> list[str]:
    """Every environment that can be asked for."""
    return [f"{suite}/{name}" for suite, names in SUITES.items() for name in names]


def kind(id: str) -> Literal["discrete", "box"]:
    """The actions that environment `id` takes: one of a few, or real numbers."""
    return "box" if id.partition("/")[2] in (*CONTINUOUS, *CONTINUOUS_PROBES) else "discrete"


def check(id: str) -> None:
    """Raise an InputError that names the remedy unless `id` is one of ours."""
    if id not in ids():
        near = get_close_matches(id, ids(), n=1, cutoff=0) + get_close_matches(f"gymnax/{id}", ids(), n=1, cutoff=0.6)
        raise InputError(f"env={id} is unknown; did you mean {near[-1]}? `benchback list` shows all")


def make(id: str, num_envs: int, framework: Literal["jax", "torch"]) -> Env:
    """`num_envs` copies of environment `id` whose arrays are of `framework`."""
    check(id)
    suite, _, name = id.partition("/")
    if suite == "torch" and framework == "jax":
        raise InputError(f"env={id} is native to PyTorch; use backend pytorch, or gymnax/{name}")
    env = import_module(f"benchback.envs.{suite}").make(name, num_envs)
    if env.framework == "jax" and framework == "torch":
        return import_module("benchback.envs.bridge").to_torch(env)
    return env
