"""Members of PyTorch side by side: the functions of one agent, run on tensors with a member axis by `torch.vmap`.

An algorithm is written for one agent and knows nothing of this. vmap covers whole phases of it; what vmap has no rule
for is done with the tensors of all members at once: random numbers are drawn member by member, each from its own
generator, and gradients are those of the sum of all losses, because members share no parameters. Counters and the
numbers of gradient steps are the same for all and stay without the axis.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily

from benchback.agent import Agent, Role, State, Weights
from benchback.backends.pytorch import Wrap, keep
from benchback.backends.torch_state import leaves, refill
from benchback.math.torch import AdamState

NETWORKS = (Role.NETWORK, Role.TARGET)
STACKED = (Role.OPTIMISER, Role.DATA, Role.ENVIRONMENT, Role.HYPER, Role.MEMORY)
"""Roles of tuples of tensors that every member has of its own."""
PROGRAMS = {name: name for name in ("rollout_steps", "finish_rollout", "bootstrap")} | {"objective": "minibatch_step"}
"""Inner functions of an agent in which nothing is drawn and no gradient is taken -> their names for a compile mode.

A mode that compiles gradient steps compiles their losses: gradient and optimiser are not within these functions."""


@dataclass
class Stacked:
    """The states of members; tensors have a member axis in front."""

    first: State
    """The state of the first member when they were stacked: a form to be filled with tensors; its counters are used."""
    parameters: dict[str, Tensor]
    """`model.actor.0.weight` and so on."""
    tensors: dict[str, Any]
    """Field -> nested tuples of tensors."""
    generators: list[torch.Generator]


def population(agent: Agent, size: int, wrap: Wrap = keep) -> Agent:
    """`size` members of the agent side by side; its functions take and return tensors with a member axis.

    Member i started from seed s is the agent started from seed s + i. Each float of `hyper` is one number for all, or
    one for each member.
    """
    assert agent.with_wrapped is not None
    inner = agent.with_wrapped(partial(_without_draws, wrap))

    def init(generators: Sequence[torch.Generator], hyper: Any) -> Stacked:
        each = [np.broadcast_to(x, (size, *np.shape(one))) for x, one in zip(hyper, agent.hyper, strict=True)]
        points = [type(hyper)(*point) for point in zip(*each, strict=True)]
        return stack(agent, [agent.init(*given) for given in zip(generators, points, strict=True)])

    def load(many: Stacked, weights: Weights) -> Stacked:
        each = ({name: np.asarray(x[i]) for name, x in weights.items()} for i in range(size))
        return stack(agent, [agent.load(member(agent, many, i), one) for i, one in enumerate(each)])

    def export(many: Stacked) -> Weights:
        each = [agent.export(member(agent, many, i)) for i in range(size)]
        return {name: np.stack([weights[name] for weights in each]) for name in each[0]}

    def act(many: Stacked, memory: Any, obs: Tensor) -> tuple[Any, Any]:
        return _for_members(agent, lambda state, *given: (state, inner.act(state, *given)))(many, memory, obs)[1]

    everywhere = partial(_for_members, agent)
    return replace(
        agent,
        init=init,
        load=load,
        rollout=everywhere(inner.rollout),
        update=everywhere(inner.update),
        learn=everywhere(inner.learn),
        act=act,
        iterate=None if inner.iterate is None else everywhere(inner.iterate),
        export=export,
        key=lambda seed: [agent.key(seed + i) for i in range(size)],
        with_wrapped=lambda wrap: population(agent, size, wrap),
    )


def stack(agent: Agent, states: Sequence[State]) -> Stacked:
    """States of the agent as one."""
    tensors = {name: [_own(getattr(x, name)) for x in states] for name in _fields(agent, STACKED)}
    return Stacked(
        states[0],
        dict(stack_module_state([_networks(agent, x) for x in states])[0]),
        {name: refill(x[0], map(torch.stack, zip(*map(leaves, x), strict=True))) for name, x in tensors.items()},
        [getattr(x, name) for x in states for name in _fields(agent, (Role.RANDOMNESS,))],
    )


@torch.no_grad()
def member(agent: Agent, many: Stacked, index: int) -> State:
    """A copy of the state of one member, as the state of the agent; its generator is the member's own."""
    copied = {name: deepcopy(getattr(many.first, name)) for name in _fields(agent, (*NETWORKS, Role.OPTIMISER))}
    state = replace(many.first, **copied)
    for name, x in _networks(agent, state).named_parameters():
        x.copy_(many.parameters[name][index])
    one = {name: refill(x, (y[index].clone() for y in leaves(x))) for name, x in many.tensors.items()}
    return _filled(agent, state, one, many.generators[index])


def _for_members(agent: Agent, function: Callable[..., tuple[State, Any]]) -> Callable[..., tuple[Stacked, Any]]:
    """A function of one agent's state as one of all members; its arguments and its result have a member axis."""

    def run(many: Stacked, *arguments: Any) -> tuple[Stacked, Any]:
        networks, generators = _networks(agent, many.first), many.generators

        def one(index: Tensor, parameters: dict[str, Tensor], tensors: Any, arguments: Any) -> tuple[Any, Any]:
            state = _filled(agent, many.first, tensors, generators[0])
            with _MemberByMember(generators, index):
                state, result = functional_call(networks, parameters, (lambda: function(state, *arguments),))
            for name in _fields(agent, (Role.COUNTER,)):
                setattr(many.first, name, getattr(state, name))
            return {name: _own(getattr(state, name)) for name in tensors}, result

        index = torch.arange(len(generators), device=generators[0].device)
        tensors, result = torch.vmap(one)(index, many.parameters, many.tensors, arguments)
        return replace(many, tensors=tensors), result

    return run


class _MemberByMember(TorchFunctionMode):
    """Within vmap: what needs a rule of its own."""

    def __init__(self, generators: Sequence[torch.Generator], index: Tensor) -> None:
        super().__init__()
        self.generators, self.index = generators, index

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if "generator" in kwargs:
            return _OnStacked.apply(partial(_draws, self.generators, function, args, kwargs), self.index)
        if function is torch.autograd.grad:
            (loss,), params = args
            return _OnStacked.apply(_gradient, loss, *params)
        if function is Tensor.lerp_:
            return args[0].copy_(torch.lerp(*args))
        return function(*args, **kwargs)


class _OnStacked(torch.autograd.Function):
    """Calls a function with the tensors of all members, from code that vmap runs."""

    @staticmethod
    def forward(function: Callable[..., Any], *tensors: Tensor) -> Any:
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def vmap(info: Any, in_dims: Any, function: Callable[..., Any], *tensors: Tensor) -> tuple[Any, Any]:
        return function(*(_in_front(x, axis, info.batch_size) for x, axis in zip(tensors, in_dims[1:], strict=True))), 0


def _in_front(x: Tensor, axis: int | None, size: int) -> Shaped[Tensor, "N ..."]:
    """The tensor with the axis of members in front; one that all members share, expanded."""
    if axis is None:
        return x.expand(size, *x.shape)
    return x.movedim(axis, 0) if axis else x


def _gradient(loss: Float[Tensor, "N"], *params: Shaped[Tensor, "N ..."]) -> tuple[Tensor, ...]:
    """The gradient of each member's loss: that of their sum, because members share no parameters."""
    return torch.autograd.grad(loss.sum(), params)


def _draws(generators: Sequence[torch.Generator], function: Any, args: Any, kwargs: Any, index: Tensor) -> Tensor:
    """What the function draws for each member, stacked."""
    return torch.stack(
        [
            function(*(x.clone() if isinstance(x, Tensor) else x for x in args), **kwargs | {"generator": generator})
            for generator in generators
        ]
    )


def _without_draws(wrap: Wrap, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without being watched for draws and gradients, which would double the time of small operations.

    What `wrap` compiles is a program of all members.
    """
    if name not in PROGRAMS:
        return function
    program = None

    def run(network: nn.Module, *arguments: Any) -> Any:
        nonlocal program
        with _pop_mode_temporarily():
            if program is not None:
                return program(network, *arguments)
            of_all = _of_all(function, _without_tensors(network))
            compiled = wrap(PROGRAMS[name], of_all)
            program = function if compiled is of_all else partial(_called, compiled)
            with warnings.catch_warnings():
                # Of the shapes of a loop's inputs, before it is compiled.
                warnings.filterwarnings("ignore", "There is a performance drop")
                return program(network, *arguments)

    return run


def _of_all(function: Callable[..., Any], form: nn.Module) -> Callable[..., Any]:
    """(parameters, arguments) -> results, of all members, of a function (network, arguments) -> results of one."""
    networks = _Networks({"network": form})

    def program(parameters: dict[str, Tensor], *arguments: Any) -> Any:
        given, result = (parameters, arguments), None

        def one(*tensors: Tensor) -> list[Tensor]:
            nonlocal result
            parameters, arguments = refill(given, iter(tensors))
            result = functional_call(networks, parameters, (lambda: function(form, *arguments),))
            return leaves(result)

        # As lists: the compiler does not follow vmap through records.
        found = torch.vmap(one)(*leaves(given))
        return refill(result, iter(found))

    # A copy of its code: torch compiles the same code only a few times, and this is that of every inner function.
    program.__code__ = program.__code__.replace()
    return program


def _called(program: Callable[..., Any], network: nn.Module, *arguments: Any) -> Any:
    """The results of a program of all members, from code of one member that vmap runs."""
    given, result = (dict(_Networks({"network": network}).named_parameters()), *arguments), None

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        nonlocal result
        result = program(*refill(given, iter(tensors)))
        return tuple(leaves(result))

    found = _OnStacked.apply(call, *leaves(given))
    return refill(result, iter(found))


def _without_tensors(network: nn.Module) -> nn.Module:
    """A copy whose parameters have shapes only."""
    return deepcopy(network, {id(x): torch.empty(x.shape, device="meta") for x in network.parameters()})


class _Networks(nn.ModuleDict):
    """Networks by name, in a form that `functional_call` can give other parameters to while a function runs."""

    def forward(self, function: Callable[[], Any]) -> Any:
        return function()


def _networks(agent: Agent, state: State) -> _Networks:
    return _Networks({name: getattr(state, name) for name in _fields(agent, NETWORKS)})


def _filled(agent: Agent, state: State, tensors: Mapping[str, Any], generator: torch.Generator) -> State:
    parts = {name: _with_own(getattr(state, name), own) for name, own in tensors.items()}
    return replace(state, **parts, **dict.fromkeys(_fields(agent, (Role.RANDOMNESS,)), generator))


def _own(part: Any) -> Any:
    """The tensors of a part of the state which differ between members."""
    return part[1:] if isinstance(part, AdamState) else part


def _with_own(part: Any, own: Any) -> Any:
    return AdamState(part.count, *own) if isinstance(part, AdamState) else own


def _fields(agent: Agent, roles: Sequence[Role]) -> list[str]:
    return [name for name, role in agent.roles.items() if role in roles]
