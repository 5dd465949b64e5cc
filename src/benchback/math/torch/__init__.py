"""The torch twin: every public name of its modules, in one namespace."""

from benchback.math.torch.distributions import entropy, greedy, gumbel, log_prob, sample
from benchback.math.torch.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    clipped_value_loss,
    standardise,
)
from benchback.math.torch.optimisers import adam
from benchback.math.torch.returns import gae, mean_where, successor_value
from benchback.math.torch.schedules import linear_anneal
from benchback.math.torch.shuffles import minibatch_indices, permutation, take

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
