"""A ratio over machines: each machine has its own, and they are a sample of machines (random effects).

Every machine counts the same. The usual weights, one over the variance, would have to be estimated from a few blocks
of each machine; in simulations the interval of Hartung and Knapp with weights of Paule and Mandel then holds the true
ratio in 90 to 95 % of the cases, with equal weights in 94.5 to 96.3 % (docs/cluster.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchback.stats.ratios import Estimate


@dataclass(frozen=True)
class RandomEffects:
    """The mean log ratio over machines, and how much machines differ beyond the error of each."""

    estimate: Estimate
    """Student's t over machines: the interval of Hartung and Knapp with equal weights."""
    between: float
    """Standard deviation of the machines' true log ratios (Hedges 1983); 0 where errors explain all differences."""
    q: float
    """Cochran's Q with equal weights; about the number of machines - 1 where they do not differ."""
    p: float
    """p-value of machines that do not differ."""
    i_squared: float
    """Share of the variance between the machines' estimates that is not error: (Q - (k - 1)) / Q, 0 at least."""


def random_effects(machines: Sequence[Estimate]) -> RandomEffects:
    """Over machines with an estimate each, two at least.

    With k machines, y their log ratios and v their squared errors: mean(y) +- t(k - 1) sd(y) / sqrt(k). Whatever the
    errors of single machines are, this covers at least as often as it says (Bakirov and Szekely 2005).
    tau^2 = max(0, var(y) - mean(v)) and Q = (k - 1) var(y) / mean(v).
    """
    count = len(machines)
    if count < 2:
        raise ValueError("a ratio over machines needs two machines at least")
    mean = math.fsum(x.mean for x in machines) / count
    variance = math.fsum((x.mean - mean) ** 2 for x in machines) / (count - 1)
    error = math.fsum(x.error**2 for x in machines) / count
    estimate = Estimate(mean, math.sqrt(variance / count), count - 1.0)
    if not error:
        # Without any error the least difference is one.
        return RandomEffects(estimate, math.sqrt(variance), math.inf if variance else 0.0, float(not variance), 1.0)
    f = variance / error
    return RandomEffects(
        estimate,
        between=math.sqrt(max(0.0, variance - error)),
        q=(count - 1) * f,
        p=_p_same(f, machines),
        i_squared=max(0.0, 1 - 1 / f) if f else 0.0,
    )


def _p_same(f: float, machines: Sequence[Estimate]) -> float:
    """p-value of var(y) / mean(v) among machines that do not differ: F with the freedom of both variances.

    The test of Brown and Forsythe (1974), corrected by Mehrotra (1997); the chi^2 distribution of Q would need known
    errors, and calls equal machines different far too often where they have few blocks each.
    """
    from scipy.special import fdtrc

    count, parts = len(machines), [x.error**2 for x in machines]
    total, squares = math.fsum(parts), math.fsum(x**2 for x in parts)
    above = ((1 - 1 / count) * total) ** 2 / ((1 - 2 / count) * squares + (total / count) ** 2)
    below = total**2 / math.fsum(x**2 / y.freedom for x, y in zip(parts, machines, strict=True))
    return float(fdtrc(above, below, f))
