"""Kinds of networks in six backends, each in its best mode, on images of MinAtar: where frameworks differ most.

Each kind has one width: that of the dense layer of an MLP and behind the convolutions of a CNN, and that of all layers
and the memory of a GRU. A batch of 1024 steps and 8 gradient steps per iteration. The CNNs of the JAX backends have a
second row with reordered gradients, because XLA is slow at convolutions in loops.
"""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BUILT_IN_BACKENDS

FIXED = {
    "env": "gymnax/Breakout-MinAtar",
    "num_envs": 32,
    "num_steps": 32,
    "num_epochs": 2,
    "num_minibatches": 4,
    "num_iterations": 100,
}
WIDTHS = ((128,), (512,))

STUDY = Study(
    name="networks",
    description="PPO on Breakout-MinAtar: an MLP, a CNN and a GRU, two widths, six backends in their best mode.",
    products=(
        Product(
            label="networks",
            axes={
                "network": ("mlp", "gru", "cnn"),
                "hidden_sizes": WIDTHS,
                "variant": variants(tuple(BUILT_IN_BACKENDS)),
            },
            fixed=FIXED,
        ),
        Product(
            label="reordered convolutions",
            axes={
                "hidden_sizes": WIDTHS,
                "variant": variants(tuple(BUILT_IN_BACKENDS), gradients="reordered"),
            },
            fixed=FIXED | {"network": "cnn"},
        ),
    ),
    min_blocks=3,
    max_blocks=12,
    keep_caches=True,
    timeout_s=900.0,
)
