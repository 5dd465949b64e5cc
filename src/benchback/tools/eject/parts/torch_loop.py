"""The training loop of an ejected file in PyTorch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.pytorch import State, make
from benchback.backends.torch_state import _named
from benchback.tools.eject.parts.gymnax_torch import environment

COMPILED = {"rollout_steps", "finish_rollout", "minibatch_step"}


Agent = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]
"""init, rollout and update."""


def agent(
    state_type: type,
    config: Any,
    env: Any,
    *,
    make: Any,
    init: Any,
    rollout: Any,
    update: Any,
    learn: Any,
    act: Any,
    towers: Any = None,
) -> Agent:
    """The algorithm made of these functions."""
    return init, rollout, update


def compiling(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled into one program, if it is one of those for which that pays off."""
    # torch's tanh on the CPU, exact to the last bit, is a third of a small network's update. This one is within
    # 2e-7 of it, like XLA's.
    return (
        torch.compile(function, fullgraph=True, dynamic=False, options={"cpp.use_decompose_tanh": True})
        if name in COMPILED
        else function
    )


def compile_gradients() -> None:
    """Let one program contain the loss, its gradient and the optimiser."""
    torch._dynamo.config.trace_autograd_ops = True


def eager(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is."""
    return function


def leave_gradients() -> None:
    """Nothing is compiled."""


def train(config: Config, seed: int, resume: Path | None = None) -> Iterator[tuple[int, State, dict[str, float]]]:
    """Iterations done, state and metrics, after each iteration."""
    compile_gradients()
    env = environment(config.num_envs)
    init, rollout, update = make(config, env, compiling)
    state, done = init(env.random(seed), config.hyper), 0
    if resume:
        done = load(resume, state)
    for iteration in range(done + 1, config.num_iterations + 1):
        state, batch = rollout(state)
        state, metrics = update(state, batch)
        yield iteration, state, {name: float(x) for name, x in metrics.items()}


def save(path: Path, state: State, iteration: int) -> None:
    """Write the arrays of a state."""
    found = {name: x.contiguous() for name, x in arrays(state).items()}
    save_file(found | {"iteration": torch.tensor(iteration)}, path)


def arrays(state: State) -> dict[str, Tensor]:
    """All arrays of a state by name, without the environment: a resumed run starts new episodes."""
    found: dict[str, Tensor] = {}
    for name, part in vars(state).items():
        if isinstance(part, nn.Module):
            found |= {f"{name}/{place}": x for place, x in part.state_dict().items()}
        elif isinstance(part, torch.Generator):
            found[name] = part.get_state()
        elif isinstance(part, int):
            found[name] = torch.tensor(part)
        elif name not in ("env", "hyper"):
            found |= _named(part, f"{name}/")
    return found


@torch.no_grad()
def load(path: Path, state: State) -> int:
    """Put the arrays of a file into a state; the iterations that were done."""
    stored = load_file(path)
    for name, x in arrays(state).items():
        x.copy_(stored[name])
    state.generator.set_state(stored["generator"])
    for name, part in vars(state).items():
        if isinstance(part, int):
            setattr(state, name, int(stored[name]))
    return int(stored["iteration"])
