"""The training loop of an ejected file in PyTorch that trains several seeds, one after another in every iteration."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.pytorch import State, make
from benchback.envs.torch import random
from benchback.tools.eject.parts.gymnax_torch import environment
from benchback.tools.eject.parts.torch_loop import compile_gradients, compiling, tensors

MEMBERS = 1


def train(
    config: Config, seed: int, resume: Path | None = None
) -> Iterator[tuple[int, list[State], dict[str, Tensor]]]:
    """Iterations done, states and metrics of all members, after each iteration; member i has the seed `seed` + i."""
    compile_gradients()
    init, rollout, update = make(config, environment(config.num_envs), compiling)  # type: ignore[misc]
    states = [init(random(seed + member), config.hyper) for member in range(MEMBERS)]
    done = load_all(resume, states) if resume else 0
    for iteration in range(done + 1, config.num_iterations + 1):
        found = []
        for member, state in enumerate(states):
            state, batch = rollout(state)
            states[member], metrics = update(state, batch)
            found.append(metrics)
        rows = {name: [float(metrics[name]) for metrics in found] for name in found[0]}
        yield iteration, states, {name: torch.tensor(row, dtype=torch.float64) for name, row in rows.items()}


def mean_return(metrics: dict[str, Any]) -> Any:
    """The mean return of the members that ended an episode."""
    return metrics["episode_return"].nanmean()


def save(path: Path, states: list[State], iteration: int) -> None:
    """Write the tensors of all members, each under its number."""
    found = {f"{member}/{name}": x for member, state in enumerate(states) for name, x in kept(state).items()}
    save_file(found | {"iteration": torch.tensor(iteration)}, path)


def kept(state: State) -> dict[str, Tensor]:
    """What is kept of a member, by name."""
    return tensors(state)


@torch.no_grad()
def load_all(path: Path, states: list[State]) -> int:
    """Put the tensors of a file into the states of all members; the iterations that were done."""
    stored = load_file(path)
    for member, state in enumerate(states):
        put({name: stored[f"{member}/{name}"] for name in kept(state)}, state)
    return int(stored["iteration"])


def put(stored: dict[str, Tensor], state: State) -> None:
    """Put what was kept of a member into its state."""
    for name, x in tensors(state).items():
        x.copy_(stored[name])
    state.generator.set_state(stored["generator"])
