"""FLOPs in the matrix products of networks: what an iteration evaluates, and what its gradient steps cost.

A convolution is as many products as there are places for its kernel; frameworks may compute it otherwise.
Activations, losses, optimisers and environments are left out: they are not products of matrices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchback.agent import Weights, networks
from benchback.algorithms.fields import Rows
from benchback.plugins.towers import TOWERS

Sizes = Sequence[Sequence[int]]
"""Inputs and outputs of each of a network's layers, the first one first."""


def forward_flops(rows: int, sizes: Sizes) -> int:
    """Of the output: a layer of n rows costs 2 n i o."""
    return sum(2 * rows * i * o for i, o in sizes)


def gradient_flops(rows: int, sizes: Sizes, *, follows: bool = False) -> int:
    """Of a gradient step: the output, the gradients of the weights and those of the layers' inputs.

    Each of the three costs as much as the output, but the first layer needs no gradient of its input unless it
    follows another network.
    """
    return 3 * forward_flops(rows, sizes) - (0 if follows else forward_flops(rows, sizes[:1]))


def input_gradient_flops(rows: int, sizes: Sizes) -> int:
    """Of the output and the gradient of the network's input, its weights being constant."""
    return 2 * forward_flops(rows, sizes)


def layer_sizes(weights: Weights, network: str = "mlp", image: Sequence[int] = ()) -> dict[str, Sizes]:
    """Network -> inputs and outputs of its layers, from canonical weights such as `actor/0/kernel`.

    Of a convolution the inputs are those of all places of its kernel on an `image` of that shape.
    """
    kernels = {name: x.shape for name, x in networks(weights).items() if name.endswith("/kernel")}
    found: dict[str, list[Sequence[int]]] = {}
    for name in sorted(kernels, key=_layer):
        found.setdefault(name.partition("/")[0], []).append(kernels[name])
    return {name: _with_places(shapes, network, image) for name, shapes in found.items()}


def _with_places(shapes: Sequence[Sequence[int]], network: str, image: Sequence[int]) -> Sizes:
    if all(len(shape) == 2 for shape in shapes):
        return shapes
    tower, dense = TOWERS[network], [shape for shape in shapes if len(shape) == 2]
    return [*tower.products(image), *dense]


def _layer(name: str) -> list[tuple[int, str]]:
    """The place of a layer: numbers in their order, layer 10 after layer 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split("/")]


def work_ledger(rows: Mapping[str, Rows], sizes: Mapping[str, Sizes], *, skips: bool) -> dict[str, Any]:
    """Ledger of the networks' work in an iteration; `skips`: final values are computed only if an episode was cut.

    Skipped rows are in none of the counts.
    """
    final = {name: 0 if skips else found.final for name, found in rows.items()}
    evaluations = {name: found.forward + final[name] for name, found in rows.items()}
    steps = (
        gradient_flops(found.gradient, sizes[name], follows=found.follows)
        + input_gradient_flops(found.input_gradient, sizes[name])
        for name, found in rows.items()
    )
    count = sum(found.final for found in rows.values())
    return {
        "forward_flops": sum(forward_flops(n, sizes[name]) for name, n in evaluations.items()),
        "gradient_flops": sum(steps),
        "network_evaluations": evaluations,
        "final_value_rows": f"{count} {'when truncated' if skips else 'always'}" if count else "none",
    }


@dataclass(frozen=True)
class ExtraWork:
    """What a run evaluates in an iteration beyond the leanest of those it is compared with."""

    rows: int
    """Rows through networks."""
    share: float
    """FLOPs of those rows over all FLOPs of the leanest."""


def extra_work(ledger: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> ExtraWork | None:
    """Compared with the ledger of `others` with the fewest FLOPs; None if there is nothing more, or nothing known."""
    counted = [other for other in others if "forward_flops" in other]
    if "forward_flops" not in ledger or not counted:
        return None
    leanest = min(counted, key=lambda other: other["forward_flops"])
    more = ledger["forward_flops"] - leanest["forward_flops"]
    rows = sum(ledger["network_evaluations"].values()) - sum(leanest["network_evaluations"].values())
    return ExtraWork(rows, more / (leanest["forward_flops"] + leanest["gradient_flops"])) if more else None
