"""Predicates of rare events that stay scalar in a population."""

from typing import Any

from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool


@custom_vmap
def any_member(happens: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether it happens; under vmap, whether it happens to any member.

    A `cond` on it stays a `cond` in a population, where one on a predicate of each member would compute both branches
    for all. Both branches must therefore mean the same to members to which it does not happen.
    """
    return happens


@any_member.def_vmap
def _of_all(size: int, batched: Any, happens: Bool[Array, "N"]) -> tuple[Bool[Array, ""], bool]:
    return any_member(happens.any()), False
