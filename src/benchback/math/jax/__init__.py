"""The JAX implementation: every public name of its modules in one namespace."""

from benchback.math.jax import categorical, gaussian
from benchback.math.jax.action_values import epsilon_greedy, epsilon_noise, q_of_action
from benchback.math.jax.bounded import acting_noise, add_noise, bounds, explore, squash
from benchback.math.jax.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    drift_surrogate,
    learned_surrogate,
    standardise,
)
from benchback.math.jax.normalisers import no_moments, normalise, rescale, update_moments
from benchback.math.jax.optimisers import AdamState, adam
from benchback.math.jax.replay import empty_replay, gather, insert, sample_indices
from benchback.math.jax.returns import discounted_return, gae, mean_where, nanmean, rewards_to_go, successor_value
from benchback.math.jax.schedules import linear_anneal, linear_ramp, piecewise_linear
from benchback.math.jax.shuffles import minibatch_indices, permutation, take
from benchback.math.jax.targets import polyak, smoothing_noise, stop_gradient, twin_target
from benchback.math.records import ActingNoise, Bounds, Moments, Replay

__all__ = [
    "ActingNoise",
    "AdamState",
    "Bounds",
    "Moments",
    "Replay",
    "acting_noise",
    "adam",
    "add_noise",
    "approximate_kl",
    "bounds",
    "categorical",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "discounted_return",
    "drift_surrogate",
    "empty_replay",
    "epsilon_greedy",
    "epsilon_noise",
    "explore",
    "gae",
    "gather",
    "gaussian",
    "insert",
    "learned_surrogate",
    "linear_anneal",
    "linear_ramp",
    "mean_where",
    "minibatch_indices",
    "nanmean",
    "no_moments",
    "normalise",
    "permutation",
    "piecewise_linear",
    "polyak",
    "q_of_action",
    "rescale",
    "rewards_to_go",
    "sample_indices",
    "smoothing_noise",
    "squash",
    "standardise",
    "stop_gradient",
    "successor_value",
    "take",
    "twin_target",
    "update_moments",
]
