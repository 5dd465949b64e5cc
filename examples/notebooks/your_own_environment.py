# %% [markdown]
# # Bring your own environment
#
# A small environment, once in Python as gymnasium knows it and once in JAX; both are trained by benchback's agents,
# and the two are held against each other before any number is believed. About a minute.

# %%
import time
from typing import Any, NamedTuple

import altair as alt
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from benchback import registry
from benchback.agent import start
from benchback.envs.interface import Discrete, Env
from benchback.envs.vectorise import vectorise
from benchback.training import advance, train
from benchback.training.run import Run

_ = alt.renderers.enable("png")

# %% [markdown]
# ## In Python
#
# A corridor of eight places. Action 1 goes right, action 0 left; the last place is the goal. Each step costs a
# little. The episode is **terminated** at the goal, and **truncated** by a time limit: the two are different
# things, and agents treat them differently.

# %%
LENGTH, LIMIT, COST = 8, 30, 0.02


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(0, LENGTH // 2))
        return self.observe(), {}

    def step(self, action):
        self.place = min(max(self.place + (1 if action == 1 else -1), 0), LENGTH - 1)
        at_goal = self.place == LENGTH - 1
        return self.observe(), float(at_goal) - COST, at_goal, False, {}

    def observe(self) -> np.ndarray:
        return np.array([self.place / (LENGTH - 1)], np.float32)


gymnasium.register("Corridor-v0", Corridor, max_episode_steps=LIMIT)

# %% [markdown]
# Once it is registered it has a name, and every backend takes it. In a shell, `--import my_module` registers it and
# `--env gymnasium/Corridor-v0` names it; here the registration above is enough.

# %%
FIELDS = {
    "algorithm": "ppo",
    "num_envs": 8,
    "num_steps": 32,
    "num_minibatches": 2,
    "num_iterations": 30,
    "hidden_sizes": [16],
}


def curve(run: Run) -> tuple[list[float], float]:
    """Mean return of each iteration, and the steps per second after the first."""
    returns, first = [], 0.0
    for progress in train(run):
        first = first or time.perf_counter()
        returns += [row["episode_return"] for row in progress.rows]
    return returns, (len(returns) - 1) * run.config.batch_size / (time.perf_counter() - first)


curves, speeds = {}, {}
for backend, mode in (("pytorch", "none"), ("linen", "jit")):
    run = Run.from_dict(FIELDS | {"env": "gymnasium/Corridor-v0", "backend": backend, "mode": mode})
    name = f"in Python, {registry.BACKENDS[backend].title}"
    curves[name], speeds[name] = curve(run)
    print(f"{name}: return {curves[name][-1]:.2f}, {speeds[name]:,.0f} steps/s")

# %% [markdown]
# ## In JAX
#
# The same, as pure functions of one environment: `reset_env`, `step_env` and `is_truncated`, as in gymnax.
# `vectorise` makes an `Env` of them: many copies, resets, final observations, returns. It then lives inside the
# compiled program.


# %%
class State(NamedTuple):
    place: jax.Array
    time: jax.Array


class JaxCorridor:
    def reset_env(self, key, params=None):
        state = State(jax.random.randint(key, (), 0, LENGTH // 2), jnp.zeros((), jnp.int32))
        return self.observe(state), state

    def step_env(self, key, state, action, params=None):
        place = jnp.clip(state.place + jnp.where(action == 1, 1, -1), 0, LENGTH - 1)
        state = State(place, state.time + 1)
        at_goal = place == LENGTH - 1
        return self.observe(state), state, at_goal.astype(float) - COST, at_goal, {}

    def is_truncated(self, state, params=None):
        return state.time >= LIMIT

    def observe(self, state):
        return (state.place / (LENGTH - 1)).astype(jnp.float32)[None]


def make(num_envs: int) -> Env:
    """So many corridors."""
    return vectorise(JaxCorridor(), None, "Corridor-v0", num_envs, Discrete(2))


# %% [markdown]
# ## First check it
#
# Twins disagree in corners: the step that reaches the goal at the time limit, a wall, the first observation after a
# reset. Play both with the same actions from the same places, and compare every transition.


# %%
def play_python(places, actions):
    """Observations, rewards, ends and time-outs of the environment in Python."""
    outcome = []
    for place, plan in zip(places, actions, strict=True):
        env = gymnasium.make("Corridor-v0")
        env.reset(seed=0)
        env.unwrapped.place = int(place)
        for action in plan:
            obs, reward, terminated, truncated, _ = env.step(int(action))
            outcome.append((float(obs[0]), reward, terminated, truncated))
            if terminated or truncated:
                break
    return outcome


def play_jax(places, actions):
    """The same of the environment in JAX."""
    env, step, outcome = JaxCorridor(), jax.jit(JaxCorridor().step_env), []
    for place, plan in zip(places, actions, strict=True):
        state = State(jnp.asarray(place), jnp.zeros((), jnp.int32))
        for action in plan:
            obs, state, reward, terminated, _ = step(None, state, action)
            truncated = bool(env.is_truncated(state))
            outcome.append((float(obs[0]), float(reward), bool(terminated), truncated))
            if terminated or truncated:
                break
    return outcome


random = np.random.default_rng(0)
places = random.integers(0, LENGTH // 2, 40)
plans = (random.random((40, LIMIT + 5)) < random.random((40, 1))).astype(int)
mine, theirs = np.array(play_jax(places, plans)), np.array(play_python(places, plans))
np.testing.assert_allclose(mine, theirs, atol=1e-6)
print(f"{len(mine)} transitions are equal, {int(mine[:, 2].sum())} of them ends, {int(mine[:, 3].sum())} time-outs")

# %% [markdown]
# `benchback conform` asks such questions of any environment: bounds, types, seeds, resets, final observations.
#
# ## Then train it
#
# An algorithm is made for a configuration and an environment. Modes and units apply as always; here ten iterations
# are one program.

# %%
CHUNK = 10
config = registry.config("ppo")(
    **{name: x for name, x in FIELDS.items() if name not in ("algorithm", "hidden_sizes")}, hidden_sizes=(16,)
)
implementation, backend = registry.load("ppo", "linen")
agent = registry.execute(implementation(config, make(config.num_envs)), backend, "jit", "chunk", CHUNK)
state, returns, first = start(agent, seed=0), [], 0.0
for _ in range(config.num_iterations // CHUNK):
    state, metrics = advance(agent, state)
    returns += backend.fetch(metrics)["episode_return"].tolist()
    first = first or time.perf_counter()
name = "in JAX, Flax Linen"
curves[name] = returns
speeds[name] = (config.num_iterations - CHUNK) * config.batch_size / (time.perf_counter() - first)
print(f"{name}: return {returns[-1]:.2f}, {speeds[name]:,.0f} steps/s")

# %%
frame = pl.DataFrame(
    [{"iteration": i, "return": x, "environment": name} for name, xs in curves.items() for i, x in enumerate(xs, 1)]
)
alt.Chart(frame).mark_line(clip=True).encode(
    alt.X("iteration"), alt.Y("return"), alt.Color("environment").legend(orient="bottom", labelLimit=300)
).properties(width=460, height=220, title="One environment, three ways")

# %%
for name, speed in sorted(speeds.items(), key=lambda item: item[1]):
    print(f"{name:22}{speed:12,.0f} steps/s")

# %% [markdown]
# ## From the command line
#
# Put `make` into a module that can be imported, and name it:
#
# ```
# benchback conform python:my_module.make
# benchback train ppo --backend nnx --env python:my_module.make
# benchback run my_study.yaml          # with env: python:my_module.make
# ```
#
# `docs/your-environment.md` has the details: torch environments, wrappers, spaces.
