"""Rows divided over devices, in programs whose environments are: `benchback.population.data_parallel` makes them."""

from typing import Any

import jax
from jax.sharding import PartitionSpec

ENVS = "envs"
"""The axis of a mesh over whose devices the environments of one agent are divided."""


def split_rows(data: Any) -> Any:
    """`data` with the rows of every array divided over those devices; `data` itself where there is no such mesh."""
    if ENVS not in jax.sharding.get_abstract_mesh().axis_names:
        return data
    return jax.lax.with_sharding_constraint(data, PartitionSpec(ENVS))
