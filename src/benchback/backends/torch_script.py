"""TorchScript: functions traced by their arguments' shapes, for the mode `script`."""

import warnings
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from benchback.backends.torch_state import leaves as tensors_of
from benchback.backends.torch_state import refill

TRACES: list[str] = []
"""Names of the functions traced in this process."""


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as TorchScript, traced once per model and argument shapes."""
    programs: WeakKeyDictionary[nn.Module, dict[Any, Any]] = WeakKeyDictionary()

    def run(model: nn.Module, *arguments: Any) -> Any:
        leaves = tensors_of(arguments)
        known = programs.setdefault(model, {})
        shapes = tuple((x.shape, x.dtype) for x in leaves)
        if shapes not in known:
            flat = _Flat(function, model, arguments)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                program = torch.jit.trace(flat, leaves, check_trace=False)
            known[shapes] = program, flat.result
            TRACES.append(function.__name__)
        program, result = known[shapes]
        return refill(result, iter(program(*leaves)))

    return run


class _Flat(nn.Module):
    """A function of a model and nested tuples in the form TorchScript needs: a module, tensors in, tensors out."""

    def __init__(self, function: Callable[..., Any], model: nn.Module, arguments: Any) -> None:
        super().__init__()
        self.function, self.model, self.arguments, self.result = function, model, arguments, None

    def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        result = self.function(self.model, *refill(self.arguments, iter(leaves)))
        tensors = tensors_of(result)
        self.result = refill(result, iter([torch.empty(0)] * len(tensors)))
        return tuple(tensors)
