"""What the environment costs: the same policy on JAX environments and on their native PyTorch twins.

PyTorch steps a JAX environment over DLPack and a native one directly; Linen shows what the JAX environment costs
inside its own framework. The twins agree transition by transition, so all three are one group.
"""

from benchback.bench.study import Product, Study, variants
from benchback.envs import TORCH

PYTORCH = variants(("pytorch",))[0]
LINEN = variants(("linen",))[0]


def _part(name: str) -> Product:
    here = (
        PYTORCH | {"env": f"gymnax/{name}"},
        PYTORCH | {"env": f"torch/{name}"},
        LINEN | {"env": f"gymnax/{name}"},
    )
    return Product(label="environments", axes={"variant": here}, fixed={"model": "small", "num_iterations": 30})


STUDY = Study(
    name="environments",
    description="One policy on JAX environments (PyTorch over DLPack, Linen) and on native PyTorch ones.",
    products=tuple(_part(name) for name in TORCH),
)
