"""All six backends in their best mode over the 12 environments and 3 model sizes of benchback-rl."""

from benchback.measure.studies.benchback_rl import ENVS, MODELS
from benchback.measure.study import Product, Study, variants
from benchback.registry import BUILT_IN_BACKENDS

STUDY = Study(
    name="backends",
    description="12 environments x 3 model sizes x six backends, each in its best mode.",
    products=(
        Product(
            label="backends",
            axes={
                "env": tuple(f"gymnax/{env}" for env in ENVS),
                "model": MODELS,
                "variant": variants(tuple(BUILT_IN_BACKENDS)),
            },
            fixed={"num_iterations": 100},
        ),
    ),
    # A large model without a GPU takes hours.
    timeout_s=8 * 3600.0,
)
