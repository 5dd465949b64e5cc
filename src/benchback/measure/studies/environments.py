"""What the environment costs: the same policy on JAX, Python and native PyTorch environments.

PyTorch steps a JAX environment over DLPack and a native one directly; Linen shows what the JAX environment costs
inside its own framework, and both show what a gymnasium environment costs that is stepped from Python. The twins agree
transition by transition, and gymnasium has the same games, so all of them are one group.
"""

from benchback.envs.names import GYMNASIUM
from benchback.measure.study import Product, Study, variants

PYTORCH = variants(("pytorch",))[0]
LINEN = variants(("linen",))[0]
NAMES = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Breakout-MinAtar")
"""Three of classic control, which gymnasium has too, and one of images, out of all that there are in torch."""


def _part(name: str) -> Product:
    here = (
        PYTORCH | {"env": f"gymnax/{name}"},
        PYTORCH | {"env": f"torch/{name}"},
        LINEN | {"env": f"gymnax/{name}"},
        *(variant | {"env": f"gymnasium/{name}"} for variant in (PYTORCH, LINEN) if name in GYMNASIUM),
    )
    return Product(label="environments", axes={"variant": here}, fixed={"model": "small", "num_iterations": 30})


STUDY = Study(
    name="environments",
    description="One policy on device (PyTorch over DLPack, Linen), host and native PyTorch environments.",
    products=tuple(_part(name) for name in NAMES),
)
