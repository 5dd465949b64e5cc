"""What a search costs: 16 learning rates x 4 seeds in one program, against the same 64 trainings one at a time.

The work is that of the study `population`, cut to 51,200 steps, as a search tries a point: start and compilation
count for much, once for all in one program, and once for each training otherwise.
"""

from benchback.measure.studies.population import FAMILY, WORK
from benchback.measure.study import Product, Study, variants
from benchback.registry import BACKENDS

SHORT = WORK | {"num_iterations": 100}

STUDY = Study(
    name="search",
    description="A search of PPO on CartPole, 16 learning rates x 4 seeds: in one program, and one training at a time.",
    products=(
        Product(label="one training", axes={"variant": variants(tuple(BACKENDS), ("iteration",))}, fixed=SHORT),
        Product(
            label="a search",
            axes={"variant": variants(FAMILY, ("iteration",))},
            fixed=SHORT | {"members": 64, "vary": {"learning_rate": "log:1e-4..1e-2:16"}},
        ),
    ),
    min_blocks=2,
    max_blocks=12,
    relay_s=10.0,
    keep_caches=True,
    budget_s=10 * 60.0,
    timeout_s=900.0,
)
