"""The parts of an iteration in the JAX family, each a program of its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchback import registry
from benchback.agent import start
from benchback.envs.interface import Discrete
from benchback.math import jax as math
from benchback.tools.profile.parts import Hyper, Workload, minibatch


def environment(work: Workload) -> tuple[Callable[[], Any], Any]:
    """A rollout without a policy, and its observations."""
    env, key = work.env, work.env.random(0)
    action = _actions(work)

    @jax.jit
    def play(state: Any) -> Any:
        noise = env.draw(key, work.steps)
        return jax.lax.scan(lambda state, x: env.step(state, *x), state, (action, noise))

    state = jax.jit(env.reset)(key)
    return lambda: play(state), play(state)[1].obs


def _actions(work: Workload) -> Any:
    """Random actions of a whole rollout, drawn once."""
    actions, key = work.env.actions, jax.random.key(1)
    shape = work.steps, work.env.num_envs
    if isinstance(actions, Discrete):
        return jax.random.randint(key, shape, 0, actions.size)
    low, high = jnp.array(actions.low), jnp.array(actions.high)
    return jax.random.uniform(key, (*shape, actions.size), minval=low, maxval=high)


def forward(work: Workload, obs: Any) -> Callable[[], Any]:
    """The policy on one step's observations after another."""
    state = start(work.plain, work.run.seed)
    memory = work.plain.initial_memory(work.env.num_envs)
    choose = jax.jit(lambda obs: jax.lax.scan(lambda memory, x: work.plain.act(state, memory, x), memory, obs)[1])
    return lambda: choose(obs)


def learning(work: Workload) -> Callable[[], Any]:
    """All gradient steps of an iteration, fused as the framework fuses iterations."""
    batch = work.phases.rollout(start(work.phases, work.run.seed))[1]
    data = minibatch(work, batch)
    # An agent whose iteration is one gradient step, so that a chunk is many gradient steps in one program.
    one = replace(
        work.plain, rollout=lambda state: (state, None), update=lambda state, _: work.plain.learn(state, data)
    )
    unit = "chunk" if work.run.compile_mode != "eager" else "iteration"
    agent = registry.execute(one, work.backend, work.run.compile_mode, unit, work.learnings)
    state, repeats = start(agent, work.run.seed), 1 if unit == "chunk" else work.learnings

    def learn() -> Any:
        nonlocal state
        for _ in range(repeats):
            state, metrics = agent.iterate(state)  # pyright: ignore[reportOptionalCall]
        return metrics

    return learn


def optimiser(work: Workload, count: int, arrays: dict[str, Any]) -> Callable[[], Any] | None:
    """So many steps of clipped Adam in one program; the weights serve as gradients, since only shapes matter."""
    params = {name: jnp.asarray(x) + 0.1 for name, x in arrays.items()}
    adam = math.adam(anneal=False, steps_per_iteration=1, num_iterations=1)

    def step(carry: Any, earlier: Any) -> tuple[Any, None]:
        params, state = carry
        change, state = adam.update(params, state, count=earlier, hyper=Hyper())
        return (optax.apply_updates(params, change), state), None

    run = jax.jit(lambda params: jax.lax.scan(step, (params, adam.init(params)), jnp.arange(count))[0][0])
    return lambda: run(params)
