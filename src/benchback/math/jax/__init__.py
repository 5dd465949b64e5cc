"""The JAX twin: every public name of its modules, in one namespace."""

from benchback.math.jax.distributions import entropy, greedy, gumbel, log_prob, sample
from benchback.math.jax.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    standardise,
)
from benchback.math.jax.optimisers import adam
from benchback.math.jax.returns import gae, mean_where, successor_value
from benchback.math.jax.schedules import linear_anneal
from benchback.math.jax.shuffles import minibatch_indices, permutation, take

__all__ = [
    "adam",
    "approximate_kl",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "entropy",
    "gae",
    "greedy",
    "gumbel",
    "linear_anneal",
    "log_prob",
    "mean_where",
    "minibatch_indices",
    "permutation",
    "sample",
    "standardise",
    "successor_value",
    "take",
]
