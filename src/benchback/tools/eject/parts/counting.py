"""The checkpoint of an ejected file in PyTorch whose State counts something beside the optimiser."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchback.algorithms.ppo.pytorch import State
from benchback.tools.eject.parts.torch_loop import tensors


def save(path: Path, state: State, iteration: int) -> None:
    """Write the tensors of a state, and what it counts."""
    save_file(tensors(state) | counts(state) | {"iteration": torch.tensor(iteration)}, path)


def counts(state: State) -> dict[str, Tensor]:
    """What a state counts, by name."""
    return {name: torch.tensor(x) for name, x in vars(state).items() if isinstance(x, int)}


@torch.no_grad()
def load(path: Path, state: State) -> int:
    """Put the tensors of a file and its counts into a state; the iterations that were done."""
    stored = load_file(path)
    for name, x in tensors(state).items():
        x.copy_(stored[name])
    state.generator.set_state(stored["generator"])
    for name in counts(state):
        setattr(state, name, int(stored[name]))
    return int(stored["iteration"])


def kept(state: State) -> dict[str, Tensor]:
    """What is kept of a member, by name."""
    return tensors(state) | counts(state)


def put(stored: dict[str, Tensor], state: State) -> None:
    """Put what was kept of a member into its state."""
    for name, x in tensors(state).items():
        x.copy_(stored[name])
    state.generator.set_state(stored["generator"])
    for name in counts(state):
        setattr(state, name, int(stored[name]))
