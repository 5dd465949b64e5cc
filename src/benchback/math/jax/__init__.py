"""The JAX twin: every public name of its modules, in one namespace."""

from benchback.math.jax import categorical, gaussian
from benchback.math.jax.action_values import chosen, epsilon_greedy, epsilon_noise
from benchback.math.jax.bounded import ActingNoise, Bounds, acting_noise, blur, bounds, explore, squash
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
from benchback.math.jax.schedules import linear_anneal, linear_ramp
from benchback.math.jax.shuffles import minibatch_indices, permutation, take
from benchback.math.jax.targets import constant, polyak, smoothing_noise, twin_target

__all__ = [
    "ActingNoise",
    "Bounds",
    "Moments",
    "Replay",
    "absorb",
    "acting_noise",
    "adam",
    "approximate_kl",
    "blur",
    "bounds",
    "categorical",
    "chosen",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "constant",
    "discounted_return",
    "draw_rows",
    "empty_replay",
    "epsilon_greedy",
    "epsilon_noise",
    "explore",
    "gae",
    "gaussian",
    "insert",
    "linear_anneal",
    "linear_ramp",
    "mean_where",
    "minibatch_indices",
    "no_moments",
    "normalise",
    "permutation",
    "polyak",
    "replayed",
    "rescale",
    "smoothing_noise",
    "squash",
    "standardise",
    "successor_value",
    "take",
    "twin_target",
]
