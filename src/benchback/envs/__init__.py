"""Environments by id, `suite/name`; importing this package imports no suite.

Two kinds of arrays: JAX environments serve the JAX family directly and PyTorch over DLPack; native
torch environments serve PyTorch alone, without JAX in the process.
"""

from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
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
CONTINUOUS_PROBES = ("Target", "ObsTarget")
BRAX = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "walker2d",
)
NAVIX = (
    *(f"Navix-Empty-{size}-v0" for size in ("5x5", "6x6", "8x8", "16x16")),
    *(f"Navix-Empty-Random-{size}-v0" for size in ("5x5", "6x6", "8x8", "16x16")),
    *(f"Navix-DoorKey-{size}-v0" for size in ("5x5", "6x6", "8x8", "16x16")),
    *(f"Navix-DoorKey-Random-{size}-v0" for size in ("5x5", "6x6", "8x8", "16x16")),
    "Navix-FourRooms-v0",
    *(f"Navix-KeyCorridor{size}-v0" for size in ("S3R1", "S3R2", "S3R3", "S4R3", "S5R3", "S6R3")),
    *(f"Navix-LavaGap{size}-v0" for size in ("S5", "S6", "S7")),
    *(f"Navix-SimpleCrossing{size}-v0" for size in ("S9N1", "S9N2", "S9N3", "S11N5")),
    *(f"Navix-Dynamic-Obstacles-{size}-v0" for size in ("5x5", "5x5-Random", "6x6", "6x6-Random", "8x8", "16x16")),
    *(f"Navix-DistShift{number}-v0" for number in (1, 2)),
    *(f"Navix-GoToDoor-{size}-v0" for size in ("5x5", "6x6", "8x8")),
)
PLAYGROUND = (
    "AcrobotSwingup",
    "AcrobotSwingupSparse",
    "BallInCup",
    "CartpoleBalance",
    "CartpoleBalanceSparse",
    "CartpoleSwingup",
    "CartpoleSwingupSparse",
    "CheetahRun",
    "FingerSpin",
    "FingerTurnEasy",
    "FingerTurnHard",
    "FishSwim",
    "HopperHop",
    "HopperStand",
    "HumanoidStand",
    "HumanoidWalk",
    "HumanoidRun",
    "PendulumSwingup",
    "PointMass",
    "ReacherEasy",
    "ReacherHard",
    "SwimmerSwimmer6",
    "WalkerRun",
    "WalkerStand",
    "WalkerWalk",
)

SUITES = {
    "gymnax": (*GYMNAX, *CONTINUOUS),
    "torch": TORCH,
    "probe": (*PROBES, *CONTINUOUS_PROBES),
    "brax": BRAX,
    "navix": NAVIX,
    "playground": PLAYGROUND,
}
"""Suite -> the names of its environments; a suite is the module of the same name."""

EXTRAS = {"brax": "brax", "navix": "navix", "playground": "mujoco_playground"}
"""Suites that are extras of the same name -> the module that such an extra brings."""


def ids() -> list[str]:
    """Every environment that can be asked for."""
    return [f"{suite}/{name}" for suite, names in SUITES.items() for name in names]


def kind(id: str) -> Literal["discrete", "box"]:
    """The actions that environment `id` takes: one of a few, or real numbers."""
    return "box" if id.partition("/")[2] in (*CONTINUOUS, *CONTINUOUS_PROBES, *BRAX, *PLAYGROUND) else "discrete"


def check(id: str) -> None:
    """Raise an InputError that names the remedy unless `id` is one of ours."""
    if id not in ids():
        near = get_close_matches(id, ids(), n=1, cutoff=0) + get_close_matches(f"gymnax/{id}", ids(), n=1, cutoff=0.6)
        raise InputError(f"env={id} is unknown; did you mean {near[-1]}? `benchback list` shows all")


def check_installed(id: str) -> None:
    """Raise an InputError that names the extra unless the suite of `id` can be imported; imports nothing."""
    suite = id.partition("/")[0]
    if suite in EXTRAS and find_spec(EXTRAS[suite]) is None:
        raise InputError(f"env={id} needs {suite}, which is not installed; pip install 'benchback[{suite}]'")


def make(id: str, num_envs: int, framework: Literal["jax", "torch"]) -> Env:
    """`num_envs` copies of environment `id` whose arrays are of `framework`."""
    check(id)
    check_installed(id)
    suite, _, name = id.partition("/")
    if suite == "torch" and framework == "jax":
        raise InputError(f"env={id} is native to PyTorch; use backend pytorch, or gymnax/{name}")
    env = import_module(f"benchback.envs.{suite}").make(name, num_envs)
    if env.framework == "jax" and framework == "torch":
        return import_module("benchback.envs.bridge").to_torch(env)
    return env
