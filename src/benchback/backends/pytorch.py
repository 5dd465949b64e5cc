"""PyTorch: parameters live in modules and change in place.

torch compiles functions, so a mode rebuilds the agent with its inner functions replaced (`Agent.within`).
An implementation offers them under these roles; what it does not offer runs in plain torch:

- `env_step` (state, action, noise) -> state, Step: of an environment that JAX computes;
- `policy_step` (model, obs, noise) -> choice: a forward pass and a draw, beside such an environment;
- `rollout_step` (model, state, noise) -> state, outcome: policy and environment in one, where the environment
  is torch's own; and `rollout_steps`, the same for all steps;
- `appraise` (model, outcome) -> batch: what a rollout still needs, for all its steps at once;
- `objective` (model, minibatch, hyper) -> loss, metrics: forward pass and loss;
- `minibatch_step` (model, optimiser state, minibatch, hyper) -> metrics: objective, gradient and optimiser.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan as _scan
from torch.utils import _pytree as pytree

from benchback.agent import Agent, Backend, Metrics, Weights
from benchback.envs.interface import Env, EnvState

Replace = Callable[[str, Callable[..., Any]], Callable[..., Any]]
"""(role, function) -> the function to use in its place."""


class MLP(nn.Sequential):
    """Tanh layers with orthogonal weights and zero biases, then a linear head of its own scale."""

    def __init__(
        self,
        inputs: int,
        hidden: tuple[int, ...],
        outputs: int,
        head_scale: float,
        dtype: torch.dtype,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = inputs, *hidden
        for fan_in, width in zip(widths, hidden):
            self.extend([_dense(fan_in, width, 2**0.5, dtype, generator), nn.Tanh()])
        self.append(_dense(widths[-1], outputs, head_scale, dtype, generator))

    def forward(self, x: Shaped[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return super().forward(x.to(self[0].weight.dtype))


def _dense(inputs: int, outputs: int, scale: float, dtype: torch.dtype, generator: torch.Generator) -> nn.Linear:
    # skip_init: torch's own initialisation would draw from the global stream.
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype, device=generator.device)
    nn.init.orthogonal_(layer.weight, scale, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def keep(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return function


def none(agent: Agent) -> Agent:
    """Mode: nothing compiled, neither in torch nor in a JAX environment."""
    return _within(agent, lambda role, f: f.eager() if role == "env_step" else f)


def env_jit(agent: Agent) -> Agent:
    """Mode: a JAX environment's step compiled by JAX, as it comes; torch eager."""
    return _within(agent, keep)


def script(agent: Agent) -> Agent:
    """Mode: TorchScript for acting and for the objective (its gradient and Adam remain eager)."""
    roles = {"policy_step", "rollout_step", "appraise", "objective"}
    return _within(agent, lambda role, f: _traced(f) if role in roles else f)


def compile(agent: Agent) -> Agent:
    """Mode: torch.compile for acting and for whole gradient steps."""
    return _within(agent, _compiling("rollout_steps", keep))


def cudagraphs(agent: Agent) -> Agent:
    """Mode: torch.compile whose programs are replayed as CUDA graphs."""
    if not torch.cuda.is_available():
        raise ValueError("mode=cudagraphs needs a CUDA device and this machine has none; use --mode compile")
    return _within(agent, _compiling("rollout_step", _own_outputs, mode="reduce-overhead"))


def _within(agent: Agent, put: Replace) -> Agent:
    # Greedy acting is not measured and stays as it is, also where the caller has put something else in its place.
    return replace(agent.within(put), act=agent.act)


def _compiling(rollout: str, finish: Replace, **options: Any) -> Replace:
    import torch._dynamo

    # Lets one program hold the loss, its gradient and the optimiser.
    torch._dynamo.config.trace_autograd_ops = True
    roles = {"policy_step", rollout, "appraise", "minibatch_step"}

    def put(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if role not in roles:
            return function
        # fullgraph: what cannot be compiled shall fail, not fall back to eager unnoticed.
        return finish(role, torch.compile(function, fullgraph=True, dynamic=False, **options))

    return put


def _own_outputs(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with copied results: a CUDA graph writes the next ones into the same memory."""
    return lambda *arguments: pytree.tree_map(torch.clone, function(*arguments))


_traces: list[str] = []


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as TorchScript, traced for each model and each shape of arguments it meets."""
    programs: WeakKeyDictionary[nn.Module, dict[Any, Any]] = WeakKeyDictionary()

    def run(model: nn.Module, *arguments: Any) -> Any:
        leaves, structure = pytree.tree_flatten(arguments)
        known = programs.setdefault(model, {})
        shapes = tuple((x.shape, x.dtype) for x in leaves)
        if shapes not in known:
            flat = _Flat(function, model, structure)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                known[shapes] = torch.jit.trace(flat, tuple(leaves), check_trace=False), flat.output
            _traces.append(function.__name__)
        program, output = known[shapes]
        return pytree.tree_unflatten(program(*leaves), output)

    return run


class _Flat(nn.Module):
    """A function of a model and nested tuples as TorchScript wants it: a module, tensors in, tensors out."""

    def __init__(self, function: Callable[..., Any], model: nn.Module, structure: Any) -> None:
        super().__init__()
        self.function, self.model, self.structure, self.output = function, model, structure, None

    def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        result = self.function(self.model, *pytree.tree_unflatten(leaves, self.structure))
        tensors, self.output = pytree.tree_flatten(result)
        return tuple(tensors)


def rollout_steps(env: Env, policy_step: Callable[..., Any], replace: Replace) -> Callable[..., Any]:
    """(model, state, env noise, noise) -> state, outcomes: `env` played by the policy for as long as there is noise.

    An outcome is the observation, the choice (the action first) and the fields of Step after its observation.
    """
    foreign = hasattr(env.step, "eager")
    choose = replace("policy_step", policy_step) if foreign else policy_step
    env_step = replace("env_step", env.step) if foreign else env.step

    def rollout_step(model: nn.Module, state: EnvState, noise: tuple[Any, Any]) -> tuple[EnvState, Any]:
        env_noise, policy_noise = noise
        choice = choose(model, state.obs, policy_noise)
        following, step = env_step(state, choice[0], env_noise)
        return following, (state.obs, *choice, *step[1:])

    one = rollout_step if foreign else replace("rollout_step", rollout_step)

    def rollout_steps(model: nn.Module, state: EnvState, noise: tuple[Any, Any]) -> tuple[EnvState, Any]:
        return scan(lambda state, x: one(model, state, x), state, noise)

    return rollout_steps if foreign else replace("rollout_steps", rollout_steps)


def scan(step: Callable[..., Any], carry: Any, sequences: tuple[Any, ...]) -> tuple[Any, tuple[Tensor, ...]]:
    """jax.lax.scan: `carry, outputs = step(carry, inputs)` along the sequences -> last carry, stacked outputs."""
    if torch.compiler.is_dynamo_compiling():
        return _compiled_scan(step, carry, sequences)
    outputs = []
    # Inference mode saves a fifth of the time of small operations. Its tensors may not meet autograd later:
    # torch.stack, outside, makes ordinary ones of them.
    with torch.inference_mode():
        for inputs in zip(*sequences, strict=True):
            carry, output = step(carry, inputs)
            outputs.append(output)
    return carry, tuple(map(torch.stack, zip(*outputs, strict=True)))


def _compiled_scan(step: Callable[..., Any], carry: Any, sequences: tuple[Any, ...]) -> tuple[Any, Any]:
    """The same as a loop inside the program; it knows lists only, and no result may share memory with another."""

    def flat_step(flat: list[Tensor], inputs: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
        following, output = step(_refill(carry, iter(flat)), inputs)
        return [x.clone() for x in _leaves(following)], [x.clone() for x in output]

    flat, outputs = _scan(flat_step, [x.clone() for x in _leaves(carry)], sequences)
    return _refill(carry, iter(flat)), tuple(outputs)


def _leaves(tree: Any) -> list[Tensor]:
    """The tensors of nested tuples and dictionaries; torch.compile does not follow torch's own pytrees here."""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in _leaves(part)]


def _refill(tree: Any, leaves: Iterator[Any]) -> Any:
    """A tree like `tree` whose tensors are replaced, in order."""
    if isinstance(tree, Tensor):
        return next(leaves)
    if isinstance(tree, dict):
        return {name: _refill(part, leaves) for name, part in tree.items()}
    parts = [_refill(part, leaves) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def phase(agent: Agent, length: int) -> Agent:
    """Unit: rollout and update are called apart."""
    return agent


def iteration(agent: Agent, length: int) -> Agent:
    """Unit: rollout and update in one call."""

    def iterate(state: Any) -> tuple[Any, Metrics]:
        state, batch = agent.rollout(state)
        return agent.update(state, batch)

    return replace(agent, iterate=iterate, within=lambda put: iteration(agent.within(put), length))


def block(tree: Any) -> None:
    """Wait until the device is idle; on the CPU torch computes before it returns."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def fetch(tree: Any) -> Any:
    """The tensors of `tree` as NumPy arrays, in one transfer."""
    leaves, structure = pytree.tree_flatten(tree)
    flat = torch.cat([x.reshape(-1).to(torch.float64) for x in leaves]).cpu()
    pieces = zip(flat.split([x.numel() for x in leaves]), leaves, strict=True)
    return pytree.tree_unflatten([_copy(piece.reshape(x.shape).to(x.dtype)) for piece, x in pieces], structure)


def compiles() -> int:
    """Graphs that dynamo has compiled and functions that TorchScript has traced in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    graphs = dynamo.counters["stats"]["unique_graphs"] if dynamo else 0
    return graphs + len(_traces)


backend = Backend(
    modes={"none": none, "env_jit": env_jit, "script": script, "compile": compile, "cudagraphs": cudagraphs},
    units={"phase": phase, "iteration": iteration},
    block=block,
    fetch=fetch,
    compiles=compiles,
)


def as_data(hyper: Any, dtype: torch.dtype) -> Any:
    """Hyper-parameters as scalars on the device, so that changing one recompiles nothing."""
    return type(hyper)(*(torch.tensor(x, dtype=dtype) for x in hyper))


def export(model: nn.Module, adam: Any, env: EnvState, generator: torch.Generator) -> Weights:
    """A training state under canonical names."""
    return {
        **to_weights(model, ""),
        "adam/count": _copy(adam.count),
        **to_weights(model, "adam/mean/", adam.mean),
        **to_weights(model, "adam/variance/", adam.variance),
        **_env_to_weights(env, "env/"),
        "rng": _copy(generator.get_state()),
    }


@torch.no_grad()
def transplant(
    weights: Weights | None, model: nn.Module, adam: Any, env: EnvState, generator: torch.Generator
) -> EnvState:
    """Put every section that `weights` holds in its place; the model, Adam and the generator change in place."""
    if weights is None:
        return env
    from_weights(model, weights, "")
    if "adam/count" in weights:
        adam.count.fill_(int(weights["adam/count"]))
        from_weights(model, weights, "adam/mean/", adam.mean)
        from_weights(model, weights, "adam/variance/", adam.variance)
    if "rng" in weights:
        generator.set_state(torch.tensor(weights["rng"]))
        return _env_from_weights(env, weights, "env/")
    return env


def to_weights(module: nn.Module, prefix: str, vector: Float[Tensor, "N"] | None = None) -> Weights:
    """The parameters under canonical names, copied; or such a vector of moments as if they were parameters."""
    return {prefix + name: _copy(x.T) for name, x in _canonical(module, vector).items()}


def from_weights(
    module: nn.Module, weights: Weights, prefix: str, vector: Float[Tensor, "N"] | None = None
) -> None:
    """The inverse of `to_weights`, in place."""
    for name, x in _canonical(module, vector).items():
        x.copy_(torch.tensor(weights[prefix + name]).T)


def _canonical(module: nn.Module, vector: Float[Tensor, "N"] | None) -> dict[str, Tensor]:
    """`actor/0/kernel` and so on -> the parameter, or its place in the vector; in torch's [out, in] layout."""
    names = [
        f"{tower}/{i}/{'kernel' if kind == 'weight' else kind}"
        for tower, mlp in module.named_children()
        for i, layer in enumerate(x for x in mlp if isinstance(x, nn.Linear))
        for kind, _ in layer.named_parameters()
    ]
    params = list(module.parameters())
    if vector is not None:
        pieces = vector.split([p.numel() for p in params])
        params = [piece.view_as(p) for piece, p in zip(pieces, params, strict=True)]
    return dict(zip(names, (p.detach() for p in params), strict=True))


def _env_to_weights(env: EnvState, prefix: str) -> Weights:
    if hasattr(env.inner, "to_weights"):  # computed elsewhere, and named there
        return env.inner.to_weights(prefix)
    leaves, _ = pytree.tree_flatten_with_path(env)
    return {prefix + _path(path): _copy(x) for path, x in leaves}


def _env_from_weights(env: EnvState, weights: Weights, prefix: str) -> EnvState:
    if hasattr(env.inner, "from_weights"):
        return env.inner.from_weights(weights, prefix)
    return pytree.tree_map_with_path(
        lambda path, x: torch.tensor(weights[prefix + _path(path)], dtype=x.dtype, device=x.device), env
    )


def _path(path: Any) -> str:
    return "/".join(key.name for key in path)


def _copy(x: Tensor) -> np.ndarray:
    return np.array(x.detach().cpu())
