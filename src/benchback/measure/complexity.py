"""How costly an environment is: the time of a vectorised step without any policy, on one thread."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchback import envs
from benchback.envs.interface import Box

LARGE = 4096
"""Number of environments at which stepping them saturates any machine."""
STEPS = 50
WARM_UPS = 2
FEWEST, MOST, ENOUGH_S = 10, 50, 3.0
"""Limits on repeats: at least the first, at most the second, and none after this many seconds."""
TRIM = 0.1
"""Share of the fastest and of the slowest repeats that is left out of the mean."""


def measure(
    ids: Sequence[str], sizes: Sequence[int], progress: Callable[[str, int, int], None] = lambda what, done, total: None
) -> list[dict[str, Any]]:
    """Seconds of a step of every environment at every number of environments, absolute and relative to the fastest."""
    rows = []
    work = [(id, size) for size in sizes for id in ids]
    for done, (id, size) in enumerate(work):
        progress(f"{id} x {size}", done, len(work))
        rows.append({"env": id, "num_envs": size, "step_s": step_seconds(id, size)})
    progress("done", len(work), len(work))
    for row in rows:
        fastest = min(other["step_s"] for other in rows if other["num_envs"] == row["num_envs"])
        row["relative"] = row["step_s"] / fastest
    return rows


def step_seconds(id: str, num_envs: int) -> float:
    """Trimmed mean seconds of a step with random actions, in a compiled loop where the suite allows it."""
    loop = {"jax": _jax_loop, "torch": _torch_loop, "python": _external_loop}[envs.about(id).where]
    play = loop(id, num_envs)
    for repeat in range(WARM_UPS):
        play(repeat)
    times: list[float] = []
    while len(times) < FEWEST or (len(times) < MOST and sum(times) < ENOUGH_S):
        started = time.perf_counter()
        play(WARM_UPS + len(times))
        times.append(time.perf_counter() - started)
    return trimmed_mean(times) / STEPS


def trimmed_mean(values: Sequence[float]) -> float:
    """Mean without the TRIM smallest and the TRIM largest."""
    cut = int(len(values) * TRIM)
    return float(np.mean(np.sort(values)[cut : len(values) - cut]))


def _jax_loop(id: str, num_envs: int) -> Callable[[int], None]:
    import jax
    import jax.numpy as jnp

    env = envs.make(id, num_envs, "jax")

    @jax.jit
    def loop(state: Any, key: Any) -> tuple[Any, Any]:
        noise_key, action_key = jax.random.split(key)
        if isinstance(env.actions, Box):
            bounds = jnp.array(env.actions.low), jnp.array(env.actions.high)
            action = jax.random.uniform(action_key, (STEPS, num_envs, env.actions.size), float, *bounds)
        else:
            action = jax.random.randint(action_key, (STEPS, num_envs), 0, env.actions.size)

        def step(state: Any, given: Any) -> tuple[Any, Any]:
            state, outcome = env.step(state, *given)
            # Results are used, so that the compiler cannot drop the step, and summed, so that nothing is stored.
            return state, sum(jnp.sum(x.astype(jnp.float32)) for x in (outcome.obs, outcome.reward, outcome.terminated))

        return jax.lax.scan(step, state, (action, env.draw(noise_key, STEPS)))

    state = jax.jit(env.reset)(env.random(0))

    def play(repeat: int) -> None:
        nonlocal state
        state, used = loop(state, env.random(repeat))
        jax.block_until_ready(used)

    return play


def _torch_loop(id: str, num_envs: int) -> Callable[[int], None]:
    import torch

    env = envs.make(id, num_envs, "torch")
    generator = env.random(0)
    state = env.reset(generator)

    def play(repeat: int) -> None:
        nonlocal state
        noise = env.draw(generator, STEPS)
        action = torch.randint(env.actions.size, (STEPS, num_envs), generator=generator)
        with torch.no_grad():
            for t in range(STEPS):
                state, _ = env.step(state, action[t], noise[t])

    return play


def _external_loop(id: str, num_envs: int) -> Callable[[int], None]:
    external = envs.make_external(id, num_envs)
    actions = external.copies.actions
    step_index, _ = external.reset(0)

    def play(repeat: int) -> None:
        nonlocal step_index
        generator = np.random.default_rng(repeat)
        if actions.kind == "discrete":
            action = generator.integers(actions.size, size=(STEPS, num_envs))
        else:
            action = generator.uniform(-1, 1, (STEPS, num_envs, actions.size))
        for t in range(STEPS):
            step_index, _ = external.step(step_index, action[t])

    return play
