"""The JAX twin: every public name of its modules, in one namespace."""

from benchback.math.jax import categorical, gaussian
from benchback.math.jax.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    standardise,
)
from benchback.math.jax.normalisers import Moments, absorb, no_moments, normalise, rescale
from benchback.math.jax.optimisers import adam
from benchback.math.jax.replay import Replay, draw_rows, empty_replay, insert, replayed
from benchback.math.jax.returns import discounted_return, gae, mean_where, successor_value
from benchback.math.jax.schedules import linear_anneal
from benchback.math.jax.shuffles import minibatch_indices, permutation, take

__all__ = [
    "Moments",
    "Replay",
    "absorb",
    "adam",
    "approximate_kl",
    "categorical",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "discounted_return",
    "draw_rows",
    "empty_replay",
    "gae",
    "gaussian",
    "insert",
    "linear_anneal",
    "mean_where",
    "minibatch_indices",
    "no_moments",
    "normalise",
    "permutation",
    "replayed",
    "rescale",
    "standardise",
    "successor_value",
    "take",
]
