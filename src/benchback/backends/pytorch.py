"""PyTorch: parameters are stored in modules and updated in place.

torch compiles functions, so a mode rebuilds the agent with its inner functions wrapped (`Agent.with_wrapped`).
An implementation provides them under these names; all else runs in eager torch:

- `env_step` (state, action, noise) -> state, Step: of an environment computed by JAX or Python;
- `policy_step` (model, obs, noise, ...) -> choice: forward pass and sampling, used with such an environment;
- `rollout_step` (model, state, noise, ...) -> state, outcome: policy and environment together, for native torch
  environments; and `rollout_steps`, the same for all steps;
- `finish_rollout` (model, outcome, ...) -> batch: values and other quantities for all steps of a rollout at once;
- `bootstrap` (model, observation) -> bootstrap value, without gradient;
- `objective` (model, minibatch, ..., hyper) -> loss, metrics: forward pass and loss;
- `minibatch_step` (networks, optimiser state, minibatch, hyper) -> metrics: objective, gradient and optimiser.

The dots are further inputs of the policy that a rollout does not change, e.g. a normaliser: tuples of tensors.
"""

import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan as torch_scan

from benchback.agent import Agent, Backend, Metrics
from benchback.backends.torch_layers import ACTIVATIONS as ACTIVATIONS
from benchback.backends.torch_layers import CNN, MLP, NatureCNN
from benchback.backends.torch_layers import dense as dense
from benchback.backends.torch_memory import keep_freed_memory
from benchback.backends.torch_script import TRACES, traced
from benchback.backends.torch_state import copy, refill, to_numpy
from benchback.backends.torch_state import leaves as tensors_of
from benchback.envs.interface import Env, EnvState
from benchback.errors import InputError
from benchback.math.torch import gaussian
from benchback.plugins import Networks

keep_freed_memory()

Wrap = Callable[[str, Callable[..., Any]], Callable[..., Any]]
"""(name, function) -> replacement function."""


class ActorCritic(nn.Module):
    """Separate actor and critic networks."""

    tower: ClassVar[Any] = MLP

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: torch.dtype,
        initial_log_std: Float[Tensor, ""] | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.actor = self.tower(observation_shape, hidden, num_actions, 0.01, dtype, generator)
        self.critic = self.tower(observation_shape, hidden, 1, 1.0, dtype, generator)
        # Log standard deviation of continuous actions.
        self.log_std = None
        if initial_log_std is not None:
            self.log_std = nn.Parameter(initial_log_std.to(generator.device, dtype).repeat(num_actions))

    def forward(self, obs: Shaped[Tensor, "B *O"]) -> tuple[Float[Tensor, "B P"], Float[Tensor, "B"]]:
        return self.policy(obs), self.value(obs)

    def policy(self, obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B P"]:
        out = self.actor(obs)
        return out if self.log_std is None else gaussian.parameters(out, self.log_std)

    def value(self, obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B"]:
        return self.critic(obs).squeeze(-1)


class ConvolutionalActorCritic(ActorCritic):
    """Separate actor and critic for images of MinAtar."""

    tower = CNN


class NatureActorCritic(ActorCritic):
    """Separate actor and critic for images of Atari."""

    tower = NatureCNN


class SharedActorCritic(ActorCritic):
    """A convolutional trunk, and an actor and a critic of one layer each on it."""

    tower = CNN

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: torch.dtype,
        initial_log_std: Float[Tensor, ""] | None,
        generator: torch.Generator,
    ) -> None:
        nn.Module.__init__(self)
        *inner, width = hidden
        self.trunk = self.tower(observation_shape, tuple(inner), width, 2**0.5, dtype, generator)
        self.actor = MLP((width,), (), num_actions, 0.01, dtype, generator)
        self.critic = MLP((width,), (), 1, 1.0, dtype, generator)
        self.log_std = None
        if initial_log_std is not None:
            self.log_std = nn.Parameter(initial_log_std.to(generator.device, dtype).repeat(num_actions))

    def forward(self, obs: Shaped[Tensor, "B *O"]) -> tuple[Float[Tensor, "B P"], Float[Tensor, "B"]]:
        features = torch.relu(self.trunk(obs))
        return super().policy(features), super().value(features)

    def policy(self, obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B P"]:
        return super().policy(torch.relu(self.trunk(obs)))

    def value(self, obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B"]:
        return super().value(torch.relu(self.trunk(obs)))


class SharedNatureActorCritic(SharedActorCritic):
    """A convolutional trunk for images of Atari, and an actor and a critic of one layer each on it."""

    tower = NatureCNN


NETWORKS = Networks(
    "pytorch",
    "ActorCritic",
    mlp=ActorCritic,
    cnn=ConvolutionalActorCritic,
    nature_cnn=NatureActorCritic,
    shared_cnn=SharedActorCritic,
    shared_nature_cnn=SharedNatureActorCritic,
)


ON_CPU: dict[str, Any] = {
    # torch's tanh on the CPU, exact to the last bit, is a third of a small network's update. This one is within
    # 2e-7 of it, like XLA's.
    "cpp.use_decompose_tanh": True,
    # One C++ file for each program, with the calls of its kernels, instead of one for each kernel and calls from
    # Python. Precompiling the headers takes as long as three such files.
    "cpp_wrapper": True,
    "cpp_cache_precompile_headers": False,
    "aot_inductor.enable_line_tables": False,  # for debuggers
    # The processor's vector instructions are trusted: to try each kind takes six runs of the C++ compiler. Those for
    # matrices (AMX) are unknown to older compilers, so they are tried.
    "cpp.vec_isa_ok": None if torch.cpu._is_amx_tile_supported() else True,
}
"""Settings of inductor on a CPU."""


def none(agent: Agent) -> Agent:
    """Mode: nothing compiled in torch, nor the step of a JAX environment."""
    return _with_wrapped(agent, lambda name, f: f.eager() if name == "env_step" else f)


def env_jit(agent: Agent) -> Agent:
    """Mode: a JAX environment's step compiled by JAX; torch eager."""
    return _with_wrapped(agent, keep)


def script(agent: Agent) -> Agent:
    """Mode: TorchScript for acting and for the loss; gradients and Adam are eager."""
    names = {"policy_step", "rollout_step", "finish_rollout", "bootstrap", "objective"}
    return _with_wrapped(agent, lambda name, f: traced(f) if name in names else f)


def compile(agent: Agent) -> Agent:
    """Mode: torch.compile for gradient steps and native rollouts; on a GPU, for acting in other environments too."""
    names = {"rollout_steps", "finish_rollout", "minibatch_step"}
    # On the CPU a compiled call costs more than the seven eager operations it would replace.
    if torch.cuda.is_available():
        names.add("policy_step")
    return _with_wrapped(agent, _compiling(names, keep, options=None if torch.cuda.is_available() else ON_CPU))


def cudagraphs(agent: Agent) -> Agent:
    """Mode: torch.compile with CUDA graphs; those cannot contain loops, so rollouts run one step at a time."""
    if not torch.cuda.is_available():
        raise InputError("mode=cudagraphs needs a CUDA device and this machine has none; use --mode compile")
    names = {"policy_step", "rollout_step", "finish_rollout", "minibatch_step"}
    return _with_wrapped(agent, _compiling(names, _own_outputs, mode="reduce-overhead"))


def keep(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function unchanged."""
    return function


def _with_wrapped(agent: Agent, wrap: Wrap) -> Agent:
    assert agent.with_wrapped is not None
    return agent.with_wrapped(wrap)


def _compiling(names: set[str], finish: Wrap, **options: Any) -> Wrap:
    with warnings.catch_warnings():
        # Late: the compiler takes as long to import as torch itself, and warns about its own use of TorchScript.
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch._inductor.compile_fx

    # Some operations are called through Python from a program in C++; a warning for each helps nobody.
    logging.getLogger("torch._inductor.ir").setLevel(logging.ERROR)
    # Allows one program to contain the loss, its gradient and the optimiser.
    torch._dynamo.config.trace_autograd_ops = True
    # Other shapes are another program. Given to torch.compile, dynamic=False is set and reset in every call, for 8 us.
    torch._dynamo.config.automatic_dynamic_shapes = False

    def wrap(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if name not in names:
            return function
        # fullgraph: code that cannot be compiled must fail instead of silently falling back to eager.
        return finish(name, torch.compile(function, fullgraph=True, **options))

    return wrap


def _own_outputs(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with copied outputs: a CUDA graph overwrites them at its next call."""
    return lambda *arguments: _cloned(function(*arguments))


def rollout_steps(env: Env, policy_step: Callable[..., Any], wrap: Wrap) -> Callable[..., Any]:
    """(model, state, noise, ...) -> state, outcomes: step `env` with the policy, one step per row of noise.

    Noise is a pair, the environment's and the policy's; further arguments go to the policy. An outcome is the
    observation, the choice (the action first), and the fields of Step after its observation.
    """
    foreign = hasattr(env.step, "eager")
    choose = wrap("policy_step", policy_step) if foreign else policy_step
    env_step = wrap("env_step", env.step) if foreign else env.step

    def rollout_step(model: nn.Module, state: EnvState, noise: tuple[Any, Any], *rest: Any) -> tuple[EnvState, Any]:
        env_noise, policy_noise = noise
        choice = choose(model, state.obs, policy_noise, *rest)
        following, step = env_step(state, choice[0], env_noise)
        return following, (state.obs, *choice, *step[1:])

    one_step = rollout_step if foreign else wrap("rollout_step", rollout_step)

    def rollout_steps(model: nn.Module, state: EnvState, noise: tuple[Any, Any], *rest: Any) -> tuple[EnvState, Any]:
        return scan(lambda state, x: one_step(model, state, x, *rest), state, noise)

    steps = rollout_steps if foreign else wrap("rollout_steps", rollout_steps)
    # Two fields of a state may alias one tensor in some calls and not in others; each case would be compiled.
    return steps if foreign else lambda model, state, *rest: steps(model, _cloned(state), *rest)


def remembering_steps(
    env: Env, policy_step: Callable[..., Any], reset: Callable[[Tensor, Tensor], Tensor], wrap: Wrap
) -> Callable[..., Any]:
    """`rollout_steps` of a policy with a memory: (model, (state, memory), noise, ...) -> (state, memory), outcomes.

    The policy is given the memory before the observation, and the memory after it is the last part of its choice;
    `reset(done, memory)` is what it remembers when it acts next.
    """
    foreign = hasattr(env.step, "eager")
    choose = wrap("policy_step", policy_step) if foreign else policy_step
    env_step = wrap("env_step", env.step) if foreign else env.step

    def rollout_step(model: nn.Module, before: tuple[EnvState, Tensor], noise: Any, *rest: Any) -> tuple[Any, Any]:
        (state, memory), (env_noise, policy_noise) = before, noise
        choice = choose(model, memory, state.obs, policy_noise, *rest)
        following, step = env_step(state, choice[0], env_noise)
        return (following, reset(step.terminated | step.truncated, choice[-1])), (state.obs, *choice, *step[1:])

    one_step = rollout_step if foreign else wrap("rollout_step", rollout_step)

    def rollout_steps(model: nn.Module, before: Any, noise: tuple[Any, Any], *rest: Any) -> tuple[Any, Any]:
        return scan(lambda before, x: one_step(model, before, x, *rest), before, noise)

    steps = rollout_steps if foreign else wrap("rollout_steps", rollout_steps)
    return steps if foreign else lambda model, before, *rest: steps(model, _cloned(before), *rest)


def scan(
    step: Callable[..., Any], carry: Any, sequences: tuple[Any, ...], *, gradient: bool = False
) -> tuple[Any, tuple[Tensor, ...]]:
    """jax.lax.scan: `carry, outputs = step(carry, inputs)` along the sequences -> last carry, stacked outputs.

    `gradient`: whether outputs are differentiated.
    """
    if torch.compiler.is_dynamo_compiling():
        return _scan_in_program(step, carry, sequences)
    outputs = []
    # Inference mode saves a fifth of the time; autograd refuses its tensors, so torch.stack, outside, copies them.
    with nullcontext() if gradient else torch.inference_mode():
        for inputs in zip(*(x.unbind() if isinstance(x, Tensor) else x for x in sequences), strict=True):
            carry, output = step(carry, inputs)
            outputs.append(output)
    return carry, tuple(map(torch.stack, zip(*outputs, strict=True)))


def _scan_in_program(step: Callable[..., Any], carry: Any, sequences: tuple[Any, ...]) -> tuple[Any, Any]:
    """`scan` as a loop inside the compiled program; it takes lists, and outputs must not alias each other.

    Tensors of one shape and type are carried as one: inductor's C++ wrapper crashes on two of equal value.
    """
    kinds = [(x.shape, x.dtype) for x in tensors_of(carry)]

    def stacked(tree: Any) -> list[Tensor]:
        each = list(zip(kinds, tensors_of(tree), strict=True))
        return [torch.stack([x for other, x in each if other == kind]) for kind in dict.fromkeys(kinds)]

    def unstacked(stacks: list[Tensor]) -> Any:
        rows = {kind: iter(x.unbind()) for kind, x in zip(dict.fromkeys(kinds), stacks, strict=True)}
        return refill(carry, (next(rows[kind]) for kind in kinds))

    def flat_step(flat: list[Tensor], inputs: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
        following, output = step(unstacked(flat), inputs)
        return stacked(following), [x.clone() for x in output]

    flat, outputs = torch_scan(flat_step, stacked(carry), sequences)
    return _cloned(unstacked(flat)), tuple(outputs)


def _cloned(tree: Any) -> Any:
    return refill(tree, (x.clone() for x in tensors_of(tree)))


def phase(agent: Agent, length: int) -> Agent:
    """Unit: rollout and update are separate calls."""
    return agent


def iteration(agent: Agent, length: int) -> Agent:
    """Unit: rollout and update in one call."""

    def iterate(state: Any) -> tuple[Any, Metrics]:
        state, batch = agent.rollout(state)
        return agent.update(state, batch)

    return replace(agent, iterate=iterate, with_wrapped=lambda wrap: iteration(_with_wrapped(agent, wrap), length))


def block(tree: Any) -> None:
    """Wait until the device is idle; no-op on the CPU, where torch is synchronous."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def mark(tree: Any) -> Callable[[], None] | None:
    """Return a function that waits for the work queued so far, not for later work; None on the CPU."""
    if not any(x.is_cuda for x in tensors_of(tree)):
        return None
    event = torch.cuda.Event()
    event.record()
    return event.synchronize


def fetch(tree: Any) -> Any:
    """`tree` as NumPy arrays, in one transfer from a device."""
    if not torch.cuda.is_available():
        return to_numpy(tree)
    leaves = tensors_of(tree)
    flat = torch.cat([x.reshape(-1).to(torch.float64) for x in leaves]).cpu()
    pieces = flat.split([x.numel() for x in leaves])
    return refill(tree, (copy(p.reshape(x.shape).to(x.dtype)) for p, x in zip(pieces, leaves, strict=True)))


def compiles() -> int:
    """Number of dynamo graphs compiled and TorchScript functions traced in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    graphs = dynamo.counters["stats"]["unique_graphs"] if dynamo else 0
    return graphs + len(TRACES)


backend = Backend(
    modes={"none": none, "env_jit": env_jit, "script": script, "compile": compile, "cudagraphs": cudagraphs},
    compile=lambda function: function,
    units={"phase": phase, "iteration": iteration},
    block=block,
    mark=mark,
    fetch=fetch,
    compiles=compiles,
    put=torch.as_tensor,
    parameters=lambda network: network.state_dict(),
)


def as_data(hyper: Any, dtype: torch.dtype) -> Any:
    """Hyper-parameters as scalar arrays on the device, so that changing one does not recompile."""
    return type(hyper)(*(torch.tensor(x, dtype=dtype) for x in hyper))
