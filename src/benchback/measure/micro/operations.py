"""The timed operations of one backend, built only from the agent contract.

Each operation is a function of no arguments that does the work once and waits for it. State is passed from
call to call as in training, so donated buffers are donated here too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchback import envs, registry
from benchback.agent import Agent, Backend, start
from benchback.algorithms.onpolicy import Transition
from benchback.algorithms.ppo.config import Config
from benchback.algorithms.ppo.loss import Minibatch

OPERATIONS = {
    "forward": "policy and argmax: one observation batch to actions, the model passed in the mode's own way",
    "closed": "the same with the model closed over: nothing but the observations is passed",
    "collect": "one step of policy and environment",
    "update": "loss, gradient, clipping and Adam on one minibatch",
    "step": "collect, advantages and update, in as few programs as the mode allows",
}
IDIOMS = {
    "jit": "tree of arrays as argument",
    "filter_jit": "module as argument, arrays filtered at every call",
    "flatten": "flat leaves as argument, merged inside",
    "cached_partial": "module bound once, its graph cached",
    "jit_partial": "module bound once, as a tree",
    "split": "split state as argument, merged inside",
    "env_jit": "module that lives in Python, every operation dispatched by itself",
    "compile": "module that lives in Python, guarded by dynamo at every call",
}
MODULE_AS_ARGUMENT = {("nnx", "jit"): "module as argument, its graph walked at every call"}
HOLLOW = (1, 1)
"""Hidden layers of a network that computes next to nothing but has as many arrays and operations as the real one."""


@dataclass(frozen=True)
class Program:
    """A program to compile and time: a backend in one of its modes, on a batch, with a network."""

    backend: str
    mode: str
    batch: int
    hidden: tuple[int, ...]

    @property
    def idiom(self) -> str:
        """How the model is passed to the program."""
        return MODULE_AS_ARGUMENT.get((self.backend, self.mode), IDIOMS[self.mode])


def hollow(program: Program) -> Program:
    """The program with layers of width one: same operations, almost no compute."""
    return replace(program, batch=1, hidden=HOLLOW)


def sample_name(program: Program, operation: str, *, first: bool = False) -> str:
    """Name of an operation's samples in a record: `linen/jit/32/64x64 update`; of its first call with `first`."""
    width = "x".join(map(str, program.hidden))
    return f"{program.backend}/{program.mode}/{program.batch}/{width} {operation}" + (" first" if first else "")


def operations(program: Program, seed: int = 0) -> dict[str, Callable[[], None]]:
    """Name -> the operation, compiled on its first call."""
    make, backend = registry.load("ppo", program.backend)
    family = registry.BACKENDS[program.backend].family
    suite = "torch" if family == "torch" else "gymnax"
    config = Config(
        num_envs=program.batch, num_steps=1, num_epochs=1, num_minibatches=1, hidden_sizes=program.hidden, anneal=False
    )
    plain = make(config, envs.make(f"{suite}/CartPole-v1", program.batch, family))
    agent = backend.modes[program.mode](plain)
    whole = registry.execute(plain, backend, program.mode, "iteration")
    forward, closed = forwards(plain, agent, program, start(plain, seed))
    return {
        "forward": waiting(forward, backend),
        "closed": waiting(closed, backend),
        "collect": threaded(agent.rollout, start(agent, seed), backend),
        "update": threaded(learning(agent, seed), start(agent, seed), backend),
        "step": threaded(whole.iterate, start(whole, seed), backend),
    }


def threaded(function: Callable[[Any], tuple[Any, Any]] | None, state: Any, backend: Backend) -> Callable[[], None]:
    """A function that passes its state on to its next call."""
    assert function is not None

    def call() -> None:
        nonlocal state
        state, result = function(state)
        backend.block(result)

    return call


def waiting(function: Callable[[], Any], backend: Backend) -> Callable[[], None]:
    """A function that waits for its result."""
    return lambda: backend.block(function())


def learning(agent: Agent, seed: int) -> Callable[[Any], tuple[Any, Any]]:
    """State -> State, Metrics: a gradient step on a minibatch from a rollout."""
    _, batch = agent.rollout(start(agent, seed))
    minibatch = minibatch_of(batch)
    return lambda state: agent.learn(state, minibatch)


def minibatch_of(batch: Transition) -> Minibatch:
    """The one step of a rollout as a minibatch; advantages need only differ from each other."""
    one = Transition(*(x[0] for x in batch))
    return Minibatch(one.obs, one.action, one.log_prob, one.value, one.log_prob, one.value + one.reward)


def forwards(plain: Agent, agent: Agent, program: Program, state: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The forward pass with the model passed in, and with the model closed over."""
    obs = state.env.obs
    if registry.BACKENDS[program.backend].family == "torch":
        return _torch_forwards(plain, program.mode, state, obs)
    import jax

    closed = jax.jit(lambda obs: plain.act(state, (), obs))
    mine = start(agent, 0)
    return lambda: agent.act(mine, (), obs), lambda: closed(obs)


def _torch_forwards(plain: Agent, mode: str, state: Any, obs: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    # torch's modes do not compile greedy actions, because training does not use them.
    import torch

    model = state.model

    def act(model: Any, obs: Any) -> Any:
        return plain.act(replace(state, model=model), (), obs)

    def act_closed(obs: Any) -> Any:
        return act(model, obs)

    if mode == "compile":
        act, act_closed = torch.compile(act, dynamic=False), torch.compile(act_closed, dynamic=False)
    return lambda: act(model, obs), lambda: act_closed(obs)
