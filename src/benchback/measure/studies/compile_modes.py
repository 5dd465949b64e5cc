"""What compilation buys: every mode and unit of every backend on CartPole with the small model.

The JAX backends in their best mode have a second row with reordered gradients, an optimisation that none of them has.

Iterations are shorter than elsewhere, 32 x 32 steps and 8 gradient steps: uncompiled JAX takes about a tenth of a
second for each of them, and all variants of a comparison do the same work.
"""

from benchback.measure.study import Product, Study, every_mode, variants
from benchback.registry import BUILT_IN_BACKENDS

FIXED = {
    "env": "gymnax/CartPole-v1",
    "model": "small",
    "num_envs": 32,
    "num_steps": 32,
    "num_epochs": 2,
    "num_minibatches": 4,
    "num_iterations": 30,
    "chunk": 5,
}

STUDY = Study(
    name="compile_modes",
    description="Every mode and unit of every backend on CartPole, small model; CUDA graphs where there is a GPU.",
    products=(
        Product(label="compile modes", axes={"variant": every_mode(without=("cudagraphs",))}, fixed=FIXED),
        Product(
            label="reordered gradients",
            axes={"variant": variants(tuple(BUILT_IN_BACKENDS), gradients="reordered")},
            fixed=FIXED,
        ),
        Product(
            label="compile modes",
            axes={"unit": ("phase", "iteration")},
            fixed=FIXED | {"backend": "pytorch", "mode": "cudagraphs"},
            devices=("gpu",),
        ),
    ),
    max_blocks=10,
)
