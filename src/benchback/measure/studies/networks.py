"""Kinds of networks in six backends, each in its best mode, on images of MinAtar: where frameworks differ most.

Each kind has one width: that of the dense layer of an MLP and behind the convolutions of a CNN, and that of all layers
and the memory of a GRU. A batch of 1024 steps and 8 gradient steps per iteration.
"""

from benchback.measure.study import Product, Study, variants
from benchback.registry import BUILT_IN_BACKENDS

STUDY = Study(
    name="networks",
    description="PPO on Breakout-MinAtar: an MLP, a CNN and a GRU, two widths, six backends in their best mode.",
    products=(
        Product(
            label="networks",
            axes={
                "network": ("mlp", "cnn", "gru"),
                "hidden_sizes": ((128,), (512,)),
                "variant": variants(tuple(BUILT_IN_BACKENDS)),
            },
            fixed={
                "env": "gymnax/Breakout-MinAtar",
                "num_envs": 32,
                "num_steps": 32,
                "num_epochs": 2,
                "num_minibatches": 4,
                "num_iterations": 100,
            },
        ),
    ),
    min_blocks=3,
    max_blocks=12,
    keep_caches=True,
    timeout_s=900.0,
)
