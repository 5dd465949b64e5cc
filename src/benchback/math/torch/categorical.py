"""The categorical distribution, given logits; same interface as `gaussian.py`."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def log_prob(logits: Float[Tensor, "*B A"], action: Int[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """log softmax(logits)[action]."""
    return logits.log_softmax(-1).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)


def entropy(logits: Float[Tensor, "*B A"]) -> Float[Tensor, "*B"]:
    """-sum p log p."""
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def noise(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Standard Gumbel noise: minus the logarithm of an exponential variable."""
    result = torch.empty(shape, dtype=dtype, device=generator.device)
    return result.exponential_(generator=generator).log_().neg_()


def sample(logits: Float[Tensor, "*B A"], noise: Float[Tensor, "*B A"]) -> Int[Tensor, "*B"]:
    """A sample of softmax(logits), given standard Gumbel noise (the Gumbel-max trick)."""
    return (logits + noise).argmax(-1)


def greedy(logits: Float[Tensor, "*B A"]) -> Int[Tensor, "*B"]:
    """The most probable action."""
    return logits.argmax(-1)
