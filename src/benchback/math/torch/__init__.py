"""The torch twin: every public name of its modules, in one namespace."""

from benchback.math.torch import categorical, gaussian
from benchback.math.torch.bounded import ActingNoise, Bounds, acting_noise, blur, bounds, explore, squash
from benchback.math.torch.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    standardise,
)
from benchback.math.torch.optimisers import adam
from benchback.math.torch.replay import Replay, draw_rows, empty_replay, insert, replayed
from benchback.math.torch.returns import gae, mean_where, successor_value
from benchback.math.torch.schedules import linear_anneal
from benchback.math.torch.shuffles import minibatch_indices, permutation, take
from benchback.math.torch.targets import constant, polyak, smoothing_noise, twin_target

__all__ = [
    "ActingNoise",
    "Bounds",
    "Replay",
    "acting_noise",
    "adam",
    "approximate_kl",
    "blur",
    "bounds",
    "categorical",
    "clip_fraction",
    "clipped_surrogate",
    "clipped_value_loss",
    "constant",
    "draw_rows",
    "empty_replay",
    "explore",
    "gae",
    "gaussian",
    "insert",
    "linear_anneal",
    "mean_where",
    "minibatch_indices",
    "permutation",
    "polyak",
    "replayed",
    "smoothing_noise",
    "squash",
    "standardise",
    "successor_value",
    "take",
    "twin_target",
]
