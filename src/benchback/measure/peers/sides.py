"""The compared implementations: benchback's own backends, baselines beside it, and three libraries.

A side is a program that does a workload in a process of its own. Where it cannot do exactly the work, `differs`
says so; any other difference makes its measurement an error.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchback.measure.peers.environments import Environment
from benchback.measure.peers.work import Workload

PROGRAMS = Path(__file__).parent / "programs"
BASELINES = Path(__file__).parents[4] / "benchmarks"
"""Folder of the baselines, in a checkout only: not a template for users."""


@dataclass(frozen=True)
class Side:
    """One compared implementation."""

    name: str
    program: str
    """File under programs/ or benchmarks/."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of the program besides the workload."""
    environment: Environment | None = None
    """Its own virtual environment; None: benchback's."""
    own: bool = False
    """Whether it is one of benchback's backends; ratios are own sides over the others."""
    envs: tuple[str, ...] = ("CartPole-v1", "Breakout-MinAtar")
    """Environments it offers."""
    algorithms: tuple[str, ...] = ("ppo",)
    """Algorithms that its program does."""
    networks: tuple[str, ...] = ("mlp",)
    """Kinds of network that it has."""
    populations: bool = False
    """Whether it trains several agents in one program."""
    differs: dict[str, Any] = field(default_factory=dict)
    """Fields of the configuration that it cannot match -> what it does instead."""
    suite: str = "gymnax"
    """Where its environments are alike, for an estimate of how long it takes."""
    note: str = ""
    """Note for the reader of the table."""

    def does(self, work: Workload) -> bool:
        """Whether it can do the work."""
        able = work.algorithm in self.algorithms and work.env in self.envs and work.network in self.networks
        return able and (work.agents == 1 or self.populations)


JAX = ("jax==0.10.2", "jaxlib==0.10.2", "flax==0.12.8", "optax==0.2.8", "numpy==2.4.6")
MUJOCO = "mujoco==4.0.0"
BRAX = ("brax==0.14.2", MUJOCO, "mujoco-mjx==3.17.0")
REJAX = Environment(
    "rejax", ((*JAX, "distrax==0.1.9", "chex==0.1.92", "gymnax==0.0.9", "six==1.17.0", *BRAX, "rejax==0.1.3"),)
)
TORCH = ("torch==2.13.0",)
BASELINES3 = ("stable-baselines3==2.9.2", "gymnasium==1.4.0", MUJOCO, "imageio==2.38.1", "packaging==26.3")
STABLE_BASELINES3 = Environment("stable_baselines3", (TORCH, (*BASELINES3, "sb3-contrib==2.9.2")))
SBX = Environment("sbx", (TORCH, (*JAX, *BASELINES3, "sbx-rl==0.28.0")))

TERMINAL = {"truncation": "terminal"}
DISCRETE, BRAX_TASK, CHEETAH = ("CartPole-v1", "Breakout-MinAtar"), "reacher", "HalfCheetah-v5"
OWN: dict[str, Any] = {
    "own": True,
    "algorithms": ("ppo", "dqn", "td3"),
    "envs": (*DISCRETE, "Pendulum-v1", BRAX_TASK, CHEETAH),
    "networks": ("mlp", "gru"),
}
DQN: dict[str, Any] = {"algorithms": ("dqn",), "envs": ("CartPole-v1",)}
WITHOUT_MEMORY: dict[str, Any] = OWN | {"networks": ("mlp",)}
NATIVE: dict[str, Any] = OWN | {"envs": (*DISCRETE, "Pendulum-v1")}
TD3: dict[str, Any] = {"algorithms": ("td3",), "envs": ("Pendulum-v1",)}
BOTH_DQN = (
    "gymnasium environments in NumPy, one after another, which explore in the same steps; squared error put in the "
    "place of Huber's loss, with which values diverge"
)

SIDES = {
    side.name: side
    for side in (
        Side(
            "purejax",
            "own.py",
            {"backend": "purejax", "mode": "jit", "unit": "chunk", "suite": "gymnax"},
            populations=True,
            note="all iterations as one program",
            **OWN,
        ),
        Side(
            "purejax_reordered",
            "own.py",
            {"backend": "purejax", "mode": "jit", "unit": "chunk", "suite": "gymnax", "gradients": "reordered"},
            populations=True,
            note="the same with kernel gradients in the order that is fastest on a CPU",
            **WITHOUT_MEMORY,
        ),
        Side(
            "pytorch",
            "own.py",
            {"backend": "pytorch", "mode": "best", "unit": "phase", "suite": "gymnax"},
            note="environment of another library: JAX's over DLPack, gymnasium's in NumPy",
            **OWN,
        ),
        Side(
            "pytorch_native",
            "own.py",
            {"backend": "pytorch", "mode": "best", "unit": "phase", "suite": "torch"},
            note="environment in torch",
            **NATIVE,
        ),
        Side(
            "purejax_style",
            "purejax_style.py",
            envs=(*DISCRETE, BRAX_TASK),
            populations=True,
            differs=TERMINAL,
            note="one program, after PureJaxRL's description; several agents by vmap",
        ),
        Side("torch_baseline", "torch_baseline.py", differs=TERMINAL, note="eager torch, JAX environment over DLPack"),
        Side(
            "rejax",
            "rejax_ppo.py",
            environment=REJAX,
            envs=(*DISCRETE, BRAX_TASK),
            populations=True,
            differs=TERMINAL | {"adam_epsilon": 1e-8},
            note="one program, gymnax 0.0.9; clips each gradient element instead of the norm; several agents by vmap",
        ),
        Side(
            "stable_baselines3",
            "baselines_ppo.py",
            {"module": "stable_baselines3"},
            STABLE_BASELINES3,
            suite="gymnasium",
            envs=("CartPole-v1", CHEETAH),
            note="gymnasium environments in NumPy, one after another; values clipped without the larger of both errors",
        ),
        Side(
            "sbx",
            "baselines_ppo.py",
            {"module": "sbx"},
            SBX,
            suite="gymnasium",
            envs=("CartPole-v1", CHEETAH),
            differs={"clip_value": False},
            note="gymnasium environments in NumPy, one after another",
        ),
        Side(
            "brax_ppo",
            "brax_ppo.py",
            envs=(BRAX_TASK,),
            # Steps that a time limit cuts off are left out of advantages.
            differs={"truncation": "masked", "adam_epsilon": 1e-8},
            note="one program; minibatches of whole unrolls, advantages computed anew in every gradient step, resets "
            "to the first state of each environment",
        ),
        Side(
            "purejax_style_recurrent",
            "purejax_recurrent.py",
            envs=("CartPole-v1",),
            networks=("gru",),
            differs=TERMINAL,
            note="one program, after PureJaxRL's description",
        ),
        Side(
            "sb3_contrib",
            "baselines_ppo.py",
            {"module": "sb3_contrib"},
            STABLE_BASELINES3,
            suite="gymnasium",
            envs=("CartPole-v1",),
            networks=("gru",),
            differs={"network": "lstm"},
            note="gymnasium environments in NumPy, one after another; an LSTM of the same width for both heads, no "
            "layer before it, minibatches of transitions",
        ),
        Side(
            "purejax_style_dqn",
            "purejax_dqn.py",
            differs=TERMINAL,
            note="one program, after PureJaxRL's description",
            **DQN,
        ),
        Side(
            "rejax_dqn",
            "rejax_off_policy.py",
            environment=REJAX,
            differs=TERMINAL,
            note="one program, gymnax 0.0.9",
            **DQN,
        ),
        Side(
            "rejax_td3",
            "rejax_off_policy.py",
            environment=REJAX,
            differs=TERMINAL,
            note="one program, gymnax 0.0.9; its actor follows the mean of both critics",
            **TD3,
        ),
        Side(
            "stable_baselines3_dqn",
            "baselines_off_policy.py",
            {"module": "stable_baselines3"},
            STABLE_BASELINES3,
            suite="gymnasium",
            note=BOTH_DQN,
            **DQN,
        ),
        Side(
            "stable_baselines3_td3",
            "baselines_off_policy.py",
            {"module": "stable_baselines3"},
            STABLE_BASELINES3,
            suite="gymnasium",
            note="gymnasium environment in NumPy",
            **TD3,
        ),
        Side(
            "sbx_dqn",
            "baselines_off_policy.py",
            {"module": "sbx"},
            SBX,
            suite="gymnasium",
            # Its second layer is as wide as the first, whatever is asked for.
            differs={"hidden_sizes": [120, 120]},
            note=BOTH_DQN,
            **DQN,
        ),
        Side(
            "sbx_td3",
            "baselines_off_policy.py",
            {"module": "sbx"},
            SBX,
            suite="gymnasium",
            note="gymnasium environment in NumPy; its actor follows the lower of both critics, its targets move in "
            "every gradient step",
            **TD3,
        ),
    )
}
