"""The names of the environments, suite by suite: known without importing any of them."""

MINATAR = ("Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar")
GYMNAX = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    *MINATAR,
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
TORCH = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "DiscountingChain-bsuite",
    "MemoryChain-bsuite",
    "UmbrellaChain-bsuite",
    "BernoulliBandit-misc",
    "GaussianBandit-misc",
    "Asterix-MinAtar",
    "Breakout-MinAtar",
    "Freeway-MinAtar",
    "SpaceInvaders-MinAtar",
)
CONTINUOUS_TORCH = ("Pendulum-v1",)
PROBES = ("OneStep", "TwoStep", "ActionReward", "ObsReward", "Truncated")
CONTINUOUS_PROBES = ("Target", "ObsTarget", "CutTarget")
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
GYMNASIUM = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
MUJOCO = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
ENVPOOL = ("CartPole-v1", "Pong-v5")
CONTINUOUS_ENVPOOL = ("HalfCheetah-v4",)

SUITES = {
    "gymnax": (*GYMNAX, *CONTINUOUS),
    "torch": (*TORCH, *CONTINUOUS_TORCH),
    "probe": (*PROBES, *CONTINUOUS_PROBES),
    "brax": BRAX,
    "navix": NAVIX,
    "playground": PLAYGROUND,
    "gymnasium": (*GYMNASIUM, *MUJOCO),
    "envpool": (*ENVPOOL, *CONTINUOUS_ENVPOOL),
}
"""Suite -> the names of its environments; a suite is the module of the same name."""
BOX = {
    "gymnax": CONTINUOUS,
    "torch": CONTINUOUS_TORCH,
    "probe": CONTINUOUS_PROBES,
    "brax": BRAX,
    "playground": PLAYGROUND,
    "gymnasium": MUJOCO,
    "envpool": CONTINUOUS_ENVPOOL,
}
"""Suite -> its environments with continuous actions."""
IMAGES = {**dict.fromkeys(MINATAR, (10, 10)), "Pong-misc": (30, 40), "Pong-v5": (84, 84)}
"""Environments that show images [height, width, channels] -> height and width. Those of navix show grids of different
sizes; all others in the lists show none."""
EXTERNAL = {"gymnasium": "any id that gymnasium has registered", "envpool": "any id that envpool lists"}
"""Suites of external environments, which run in Python -> the ids they take besides the tested ones in SUITES."""
EXTRAS = {
    "brax": ("brax", "brax"),
    "navix": ("navix", "navix"),
    "playground": ("mujoco_playground", "playground"),
    "gymnasium": ("gymnasium", "mujoco"),
    "envpool": ("envpool", "envpool"),
}
"""Suite -> the module that it needs and the extra of this package that installs it."""
NEEDED = {
    **{suite: {"jax": "jax"} for suite in ("probe", "brax", "navix", "playground")},
    "gymnax": {"jax": "jax", "gymnax": "jax"},
    "torch": {"torch": "torch"},
}
"""Suite -> packages of a whole framework that it needs -> the extra that installs each."""
