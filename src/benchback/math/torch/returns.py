"""Advantages and returns over time-major tensors."""

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor


def successor_value(
    value: Float[Tensor, "T E"],
    last_value: Float[Tensor, "E"],
    final_value: Float[Tensor, "T E"],
    truncated: Bool[Tensor, "T E"],
) -> Float[Tensor, "T E"]:
    """Value of the next observation of each step: of the final observation where the episode was truncated."""
    following = torch.cat([value[1:], last_value[None]])
    return torch.where(truncated, final_value, following)


def gae(
    reward: Float[Tensor, "T E"],
    value: Float[Tensor, "T E"],
    next_value: Float[Tensor, "T E"],
    terminated: Bool[Tensor, "T E"],
    done: Bool[Tensor, "T E"],
    *,
    gamma: Float[Tensor, ""],
    lam: Float[Tensor, ""],
) -> Float[Tensor, "T E"]:
    """Generalised advantage estimation; bootstraps through truncation, never through termination.

    A_t = delta_t + gamma lambda (1 - done_t) A_{t+1}, delta_t = r_t + gamma (1 - terminated_t) V_{t+1} - V_t
    (Schulman et al. 2016, equation 16).
    """
    delta = reward + gamma * next_value.masked_fill(terminated, 0) - value
    decay = torch.where(done, 0, gamma * lam).to(delta.dtype)
    return _accumulate(delta, decay)


def rewards_to_go(
    reward: Float[Tensor, "T E"],
    next_value: Float[Tensor, "T E"],
    terminated: Bool[Tensor, "T E"],
    done: Bool[Tensor, "T E"],
    *,
    gamma: Float[Tensor, ""],
) -> Float[Tensor, "T E"]:
    """Discounted rewards from each step to the end of its episode; bootstraps where truncated or cut by the rollout.

    R_t = r_t + gamma R_{t+1} within an episode, r_t where it terminates, r_t + gamma V_{t+1} where it is cut.
    """
    ends = torch.cat([done[:-1], torch.ones_like(done[-1:])])
    bootstrapped = reward + gamma * next_value.masked_fill(terminated | ~ends, 0)
    return _accumulate(bootstrapped, torch.where(done, 0, gamma).to(bootstrapped.dtype))


def _accumulate(delta: Float[Tensor, "T E"], decay: Float[Tensor, "T E"]) -> Float[Tensor, "T E"]:
    """A_t = delta_t + decay_t A_{t+1}, in log2 T rounds.

    Before each round A_t sums the next `reach` steps and decay_t is the factor of A_{t+reach} in A_t, so one
    round doubles the reach. T rounds of a plain loop would cost torch T kernel launches.
    """
    reach, num_steps = 1, delta.shape[0]
    advantage = delta
    while reach < num_steps:
        # Out of place: the rows of one round overlap those they read from.
        advantage = torch.cat([advantage[:-reach] + decay[:-reach] * advantage[reach:], advantage[-reach:]])
        decay = torch.cat([decay[:-reach] * decay[reach:], decay[-reach:]])
        reach *= 2
    return advantage


def discounted_return(
    reward: Float[Tensor, "T E"], done: Bool[Tensor, "T E"], before: Float[Tensor, "E"], *, gamma: Float[Tensor, ""]
) -> Float[Tensor, "T E"]:
    """Discounted return of each episode up to each step: R_t = r_t + gamma (1 - done_{t-1}) R_{t-1}.

    `before` is R before the first step: zero for new episodes.
    """
    decay = torch.where(done, 0, gamma).to(before.dtype)
    # The recursion of advantages, reversed in time; `before` is prepended as the first step.
    steps = torch.cat([before[None], reward.to(before.dtype)])
    decays = torch.cat([torch.zeros_like(before)[None], gamma.expand_as(before)[None], decay[:-1]])
    return _accumulate(steps.flip(0), decays.flip(0)).flip(0)[1:]


def mean_where(x: Num[Tensor, "T E"], mask: Bool[Tensor, "T E"]) -> Float[Tensor, ""]:
    """Mean of the masked entries; NaN if there are none."""
    return torch.where(mask, x, 0).sum() / mask.sum()


def nanmean(x: Float[Tensor, "U"]) -> Float[Tensor, ""]:
    """Mean of the entries that are not NaN; NaN if there are none."""
    return x.nanmean()
