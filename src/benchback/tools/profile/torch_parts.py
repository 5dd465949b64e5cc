"""The parts of an iteration in PyTorch, compiled as the run's mode compiles them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchback.agent import Agent, start
from benchback.backends import pytorch
from benchback.envs.interface import Discrete
from benchback.math import torch as math
from benchback.tools.profile.parts import Hyper, Workload, minibatch


def environment(work: Workload) -> tuple[Callable[[], Any], Any]:
    """A rollout whose policy reads its actions from a list, and its observations."""
    env, generator, model = work.env, work.env.random(0), torch.nn.Identity()
    action = _actions(work)

    def replaying(wrap: pytorch.Wrap) -> Agent:
        steps = pytorch.rollout_steps(env, lambda model, obs, action: (action,), wrap)

        @torch.no_grad()
        def rollout(state: Any) -> tuple[Any, Any]:
            return steps(model, state, (env.draw(generator, work.steps), action))

        absent = dict.fromkeys(("init", "load", "update", "learn", "act", "export", "key"), _absent)
        return Agent(**absent, rollout=rollout, hyper=None, roles={})

    agent = work.backend.modes[work.run.compile_mode](_rebuilt(replaying))
    state = env.reset(generator)
    return lambda: agent.rollout(state), agent.rollout(state)[1][0]


def _rebuilt(build: Callable[[pytorch.Wrap], Agent]) -> Agent:
    return replace(build(pytorch.keep), with_wrapped=build)


def _absent(*arguments: Any) -> Any:
    raise NotImplementedError("this agent only rolls out")


def _actions(work: Workload) -> Any:
    """Random actions of a whole rollout, drawn once."""
    actions, generator = work.env.actions, torch.Generator().manual_seed(1)
    shape = work.steps, work.env.num_envs
    if isinstance(actions, Discrete):
        return torch.randint(actions.size, shape, generator=generator)
    low, high = torch.tensor(actions.low), torch.tensor(actions.high)
    return low + (high - low) * torch.rand((*shape, actions.size), generator=generator)


def forward(work: Workload, obs: Any) -> Callable[[], Any]:
    """The policy on one step's observations after another; in one program where the mode compiles whole rollouts."""
    state = start(work.plain, work.run.seed)
    act, memory = work.plain.act, work.plain.initial_memory(work.env.num_envs)
    if work.run.compile_mode == "compile" and not hasattr(work.env.step, "eager"):
        act = torch.compile(act, dynamic=False)

    @torch.inference_mode()
    def choose() -> Any:
        return [act(state, memory, x)[1] for x in obs]

    return choose


def learning(work: Workload) -> Callable[[], Any]:
    """All gradient steps of an iteration, one call after another."""
    state = start(work.phases, work.run.seed)
    state, batch = work.phases.rollout(state)
    data = minibatch(work, batch)

    def learn() -> Any:
        nonlocal state
        for _ in range(work.learnings):
            state, metrics = work.phases.learn(state, data)
        return metrics

    return learn


def optimiser(work: Workload, count: int, arrays: dict[str, Any]) -> Callable[[], Any] | None:
    """So many steps of clipped Adam; the weights serve as gradients, since only shapes matter."""
    params = [torch.tensor(x) + 0.1 for x in arrays.values()]
    adam = math.adam(anneal=False, steps_per_iteration=1, num_iterations=1)
    state, hyper = adam.init(params), pytorch.as_data(Hyper(), params[0].dtype)
    update = torch.compile(adam.update, dynamic=False) if work.run.compile_mode == "compile" else adam.update

    def step() -> Any:
        for _ in range(count):
            norm = update(params, state, params, hyper=hyper)
        return norm

    return step
