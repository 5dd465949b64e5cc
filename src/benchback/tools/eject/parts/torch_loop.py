"""The training loop of an ejected file in PyTorch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan as torch_scan
from torch._inductor import config as inductor

from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.pytorch import State, make
from benchback.backends.torch_state import _named
from benchback.envs.interface import Env, EnvState
from benchback.envs.torch import random
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
    initial_memory: Any = None,
) -> Agent:
    """The algorithm made of these functions."""
    return init, rollout, update


def compiling(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled into one program, if it is one of those for which that pays off."""
    # torch's tanh on the CPU, exact to the last bit, is a third of a small network's update. This one is within
    # 2e-7 of it, like XLA's.
    return (
        torch.compile(function, fullgraph=True, options={"cpp.use_decompose_tanh": True})
        if name in COMPILED
        else function
    )


def compile_gradients() -> None:
    """Let one program contain the loss, its gradient and the optimiser, and be one C++ file with all its kernels."""
    torch._dynamo.config.trace_autograd_ops = inductor.cpp_wrapper = True


def eager(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is."""
    return function


def leave_gradients() -> None:
    """Nothing is compiled."""


def rollout_steps(env: Env, policy_step: Callable[..., Any], wrap: Any) -> Callable[..., Any]:
    """(model, state, noise, ...) -> state, outcomes: step `env` with the policy, one step per row of noise."""

    def steps(model: Any, env_state: EnvState, noise: tuple[Any, Any], *rest: Any) -> tuple[EnvState, Any]:
        outcomes = []
        # Inference mode saves a fifth of the time; autograd refuses its tensors, so torch.stack, outside, copies them.
        with torch.inference_mode():
            for env_row, policy_row in zip(*noise, strict=True):
                obs = env_state.obs
                action, *found = policy_step(model, obs, policy_row, *rest)
                env_state, step = env.step(env_state, action, env_row)
                outcomes.append((obs, action, *found, *step[1:]))
        return env_state, tuple(map(torch.stack, zip(*outcomes, strict=True)))

    return steps


def remembering_steps(
    env: Env, policy_step: Callable[..., Any], reset: Callable[[Tensor, Tensor], Tensor], wrap: Any
) -> Callable[..., Any]:
    """`rollout_steps` of a policy with a memory."""

    def steps(model: Any, before: Any, noise: tuple[Any, Any], *rest: Any) -> tuple[Any, Any]:
        env_state, memory = before
        outcomes = []
        # Inference mode saves a fifth of the time; autograd refuses its tensors, so torch.stack, outside, copies them.
        with torch.inference_mode():
            for env_row, policy_row in zip(*noise, strict=True):
                obs = env_state.obs
                action, *found, memory = policy_step(model, memory, obs, policy_row, *rest)
                env_state, step = env.step(env_state, action, env_row)
                outcomes.append((obs, action, *found, memory, *step[1:]))
                memory = reset(step.terminated | step.truncated, memory)
        return (env_state, memory), tuple(map(torch.stack, zip(*outcomes, strict=True)))

    return steps


def scan_in_program(step: Callable[..., Any], carry: Tensor, sequences: tuple[Any, ...]) -> tuple[Tensor, Any]:
    """jax.lax.scan of one tensor as a loop inside the compiled program; its outputs must not alias each other."""

    def next_step(carry: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, list[Tensor]]:
        following, output = step(carry, inputs)
        return following, [x.clone() for x in output]

    return torch_scan(next_step, carry, sequences)


def train(config: Config, seed: int, resume: Path | None = None) -> Iterator[tuple[int, State, dict[str, float]]]:
    """Iterations done, state and metrics, after each iteration."""
    compile_gradients()
    init, rollout, update = make(config, environment(config.num_envs), compiling)  # type: ignore[misc]
    state, done = init(random(seed), config.hyper), 0
    if resume:
        done = load(resume, state)
    for iteration in range(done + 1, config.num_iterations + 1):
        state, batch = rollout(state)
        state, metrics = update(state, batch)
        yield iteration, state, {name: float(x) for name, x in metrics.items()}


def save(path: Path, state: State, iteration: int) -> None:
    """Write the tensors of a state."""
    save_file(tensors(state) | {"iteration": torch.tensor(iteration)}, path)


def tensors(state: State) -> dict[str, Tensor]:
    """The tensors of a state by name, without the environment: a resumed run starts new episodes."""
    found = {"generator": state.generator.get_state()}
    for name, part in vars(state).items():
        if isinstance(part, nn.Module):
            found |= {f"{name}/{place}": x for place, x in part.state_dict().items()}
        elif hasattr(part, "_asdict") and name not in ("env", "hyper"):
            found |= named(part, f"{name}/")
    return found


def named(part: Any, prefix: str) -> dict[str, Tensor]:
    """The tensors of nested NamedTuples by their path."""
    return _named(part, prefix)


def named_at_once(part: Any, prefix: str) -> dict[str, Tensor]:
    """The tensors of a NamedTuple by name."""
    return {prefix + field: x for field, x in part._asdict().items()}


@torch.no_grad()
def load(path: Path, state: State) -> int:
    """Put the tensors of a file into a state; the iterations that were done."""
    stored = load_file(path)
    for name, x in tensors(state).items():
        x.copy_(stored[name])
    state.generator.set_state(stored["generator"])
    return int(stored["iteration"])
