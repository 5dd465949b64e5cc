"""The torch twin: every public name of its modules, in one namespace."""

from benchback.math.torch import categorical, gaussian
from benchback.math.torch.action_values import chosen, epsilon_greedy, epsilon_noise
from benchback.math.torch.bounded import ActingNoise, Bounds, acting_noise, blur, bounds, explore, squash
from benchback.math.torch.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    standardise,
)
from benchback.math.torch.normalisers import Moments, absorb, no_moments, normalise, rescale
from benchback.math.torch.optimisers import adam
from benchback.math.torch.replay import Replay, draw_rows, empty_replay, insert, replayed
from benchback.math.torch.returns import discounted_return, gae, mean_where, successor_value
from benchback.math.torch.schedules import linear_anneal, linear_ramp
from benchback.math.torch.shuffles import minibatch_indices, permutation, take
from benchback.math.torch.targets import constant, polyak, smoothing_noise, twin_target

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
