"""Export and loading of PyTorch states under canonical names, and functions on nested tuples of tensors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from benchback.agent import Agent, Role, Weights, counter_name, declared_fields, roles
from benchback.envs.interface import Env, EnvState

Towers = Mapping[str, Sequence[str]]
"""Optimiser field -> the towers it optimises; the whole model if it is not listed."""


def agent(
    state_type: type,
    config: Any,
    env: Env,
    *,
    make: Callable[..., Agent],
    towers: Towers | None = None,
    **functions: Any,
) -> Agent:
    """The Agent made of these functions; `load` and `export` follow the roles of the State's fields."""
    role_of = roles(state_type)
    return Agent(
        load=lambda state, weights: load(state, weights, role_of, towers or {}),
        export=lambda state: export(state, role_of, towers or {}),
        key=env.random,
        hyper=config.hyper,
        roles=role_of,
        with_wrapped=lambda wrap: make(config, env, wrap),
        **functions,
    )


def export(state: Any, role_of: Mapping[str, Role], towers: Towers) -> Weights:
    """The weights of a training state (a dataclass) under canonical names."""
    weights: Weights = {}
    for field, part in declared_fields(vars(state), role_of).items():
        match role_of[field]:
            case Role.NETWORK:
                weights |= to_weights(part, "")
            case Role.TARGET:
                weights |= to_weights(part, "target/")
            case Role.OPTIMISER:
                weights[f"{field}/count"] = copy(part.count)
                weights |= to_weights(state.model, f"{field}/mean/", part.mean, towers.get(field))
                weights |= to_weights(state.model, f"{field}/variance/", part.variance, towers.get(field))
            case Role.DATA | Role.MEMORY:
                weights |= {name: copy(x) for name, x in _named(part, f"{field}/").items()}
            case Role.COUNTER:
                weights[counter_name(field)] = np.array(part, np.int32)
            case Role.ENVIRONMENT:
                weights |= _env_to_weights(part, "env/")
            case Role.RANDOMNESS:
                weights["rng"] = copy(part.get_state())
            case Role.HYPER:
                pass
    return weights


@torch.no_grad()
def load(state: Any, weights: Weights, role_of: Mapping[str, Role], towers: Towers) -> Any:
    """The state with every section in `weights` restored, in place."""
    for field, part in declared_fields(vars(state), role_of).items():
        match role_of[field]:
            case Role.NETWORK:
                from_weights(part, weights, "")
            case Role.TARGET:
                from_weights(part, weights, "target/")
            case Role.OPTIMISER if f"{field}/count" in weights:
                part.count.fill_(int(weights[f"{field}/count"]))
                from_weights(state.model, weights, f"{field}/mean/", part.mean, towers.get(field))
                from_weights(state.model, weights, f"{field}/variance/", part.variance, towers.get(field))
            case Role.MEMORY if field in weights and any(name.startswith("env/") for name in weights):
                part.copy_(torch.tensor(weights[field]))  # of the episodes that go on
            case Role.DATA:
                # Arrays of episodes that are not continued are absent from the weights and keep their initial values.
                _fill({name: x for name, x in _named(part, f"{field}/").items() if name in weights}, weights)
            case Role.COUNTER if counter_name(field) in weights:
                setattr(state, field, int(weights[counter_name(field)]))
            case Role.ENVIRONMENT if "rng" in weights:
                setattr(state, field, _env_from_weights(part, weights, "env/"))
            case Role.RANDOMNESS if "rng" in weights:
                part.set_state(torch.tensor(weights["rng"]))
    return state


def to_weights(
    module: nn.Module, prefix: str, vector: Float[Tensor, "N"] | None = None, towers: Sequence[str] | None = None
) -> Weights:
    """Copies of the parameters, or of a flat vector of moments, under canonical names."""
    return {prefix + name: copy(_inputs_first(x)) for name, x in _canonical(module, vector, towers).items()}


def from_weights(
    module: nn.Module,
    weights: Weights,
    prefix: str,
    vector: Float[Tensor, "N"] | None = None,
    towers: Sequence[str] | None = None,
) -> None:
    """Inverse of `to_weights`, in place."""
    for name, x in _canonical(module, vector, towers).items():
        _inputs_first(x).copy_(torch.tensor(weights[prefix + name]))


def _inputs_first(x: Tensor) -> Tensor:
    """A view of a parameter in the canonical layout: `[in, out]` or, of a convolution, `[height, width, in, out]`."""
    return x.permute(2, 3, 1, 0) if x.ndim == 4 else x.movedim(0, -1)


def _canonical(module: nn.Module, vector: Float[Tensor, "N"] | None, towers: Sequence[str] | None) -> dict[str, Tensor]:
    """`actor/0/kernel` and so on -> the parameter, or its slice of the vector; in torch's [out, in] layout."""
    wanted = {name: p.detach() for name, p in module.named_parameters() if not towers or name.split(".")[0] in towers}
    params = list(wanted.values())
    if vector is not None:
        pieces = vector.split([p.numel() for p in params])
        params = [piece.view_as(p) for piece, p in zip(pieces, params, strict=True)]
    names = [_name(module, name, p.ndim) for name, p in wanted.items()]
    return dict(zip(names, params, strict=True))


def _name(module: nn.Module, name: str, dimensions: int) -> str:
    """`actor.2.weight` -> `actor/1/kernel`: of a sequence, modules without parameters, as activations, do not count."""
    *path, kind = name.split(".")
    canonical = []
    for step in path:
        if isinstance(module, nn.Sequential):
            before = list(module.children())[: int(step)]
            canonical.append(str(sum(any(True for _ in child.parameters()) for child in before)))
        else:
            canonical.append(step)
        module = module.get_submodule(step)
    return "/".join([*canonical, {"weight": "kernel" if dimensions > 1 else "scale"}.get(kind, kind)])


def _env_to_weights(env: EnvState, prefix: str) -> Weights:
    if hasattr(env.inner, "to_weights"):  # not a torch state: it exports its own arrays
        return env.inner.to_weights(prefix)
    return {name: copy(x) for name, x in zip(_places(env, prefix), leaves(env), strict=True)}


def _env_from_weights(env: EnvState, weights: Weights, prefix: str) -> EnvState:
    if not any(name.startswith(prefix) for name in weights):
        return env  # external environments export nothing: keep the new episodes
    if hasattr(env.inner, "from_weights"):
        return env.inner.from_weights(weights, prefix)
    tensors = zip(_places(env, prefix), leaves(env), strict=True)
    return refill(env, (torch.tensor(weights[name], dtype=x.dtype, device=x.device) for name, x in tensors))


def _places(tree: Any, prefix: str) -> list[str]:
    """Where each of the `leaves` is, by fields, keys and numbers."""
    if isinstance(tree, Tensor):
        return [prefix.removesuffix("/")]
    steps = tree if isinstance(tree, dict) else getattr(tree, "_fields", range(len(tree)))
    parts = zip(steps, tree.values() if isinstance(tree, dict) else tree, strict=True)
    return [place for step, part in parts for place in _places(part, f"{prefix}{step}/")]


def _fill(tensors: Mapping[str, Tensor], weights: Weights) -> None:
    for name, x in tensors.items():
        x.copy_(torch.tensor(weights[name]))


def _named(tree: Any, prefix: str) -> dict[str, Tensor]:
    """The tensors of nested NamedTuples by their path."""
    if isinstance(tree, Tensor):
        return {prefix.removesuffix("/"): tree}
    fields = getattr(tree, "_fields", ())  # an empty tuple has none
    parts = [_named(part, f"{prefix}{field}/") for field, part in zip(fields, tree, strict=True)]
    return {name: x for part in parts for name, x in part.items()}


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of nested tuples and dictionaries. (torch.compile does not follow torch's own pytrees.)"""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(part)]


def refill(tree: Any, tensors: Iterator[Any]) -> Any:
    """`tree` with its tensors replaced, in order."""
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, dict):
        return {name: refill(part, tensors) for name, part in tree.items()}
    parts = [refill(part, tensors) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def to_numpy(tree: Any) -> Any:
    """`tree` with its tensors, which are on the CPU, copied to NumPy arrays."""
    if isinstance(tree, Tensor):
        return tree.numpy().copy()
    if isinstance(tree, dict):
        return {name: to_numpy(part) for name, part in tree.items()}
    parts = map(to_numpy, tree)
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def copy(x: Tensor) -> np.ndarray:
    """The tensor copied to a NumPy array."""
    return x.cpu().numpy().copy()
