# %% [markdown]
# # From a Python loop to one program
#
# The same agent collects the same kind of experience, written five ways, each a step further from Python; then it
# learns, and the whole training becomes one program. Each step prints its speed on this machine.
#
# On a processor with two cores this takes about a minute, most of it compiling.

# %%
import ast
import inspect
import time
from importlib import import_module
from typing import Any

import altair as alt
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from benchback import envs, registry
from benchback.agent import start
from benchback.training import advance

alt.renderers.enable("png")
speeds: dict[str, float] = {}


def measure(name: str, function, steps: int, calls: int = 3) -> None:
    """Call once to compile, then note the steps per second of the fastest of some calls."""
    jax.block_until_ready(function())
    seconds = []
    for _ in range(calls):
        begun = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - begun)
    speeds[name] = steps / min(seconds)
    print(f"{name}: {speeds[name]:,.0f} environment steps/s")


# %% [markdown]
# ## 1. A loop in Python
#
# One CartPole, a network of two layers in `jax.numpy`, and Python in between, as in NumPy. Nothing is compiled:
# every small operation is sent to the device by itself.

# %%
env, params = gymnax.make("CartPole-v1")


def init_policy(key):
    first, second = jax.random.split(key)
    return {"in": 0.5 * jax.random.normal(first, (4, 64)), "out": 0.1 * jax.random.normal(second, (64, 2))}


def act(policy, obs, key):
    """An action drawn from the policy, for one observation or for many."""
    logits = jnp.tanh(obs @ policy["in"]) @ policy["out"]
    return jax.random.categorical(key, logits)


def step(policy, key, obs, state):
    """Act, and step one environment, which begins again by itself."""
    action_key, env_key = jax.random.split(key)
    action = act(policy, obs, action_key)
    obs, state, reward, _, _, _ = env.step(env_key, state, action, params)
    return obs, state, reward


policy = init_policy(jax.random.key(0))
obs, state = env.reset(jax.random.key(1), params)


def python_loop(steps: int):
    current, inner, total = obs, state, 0.0
    for key in jax.random.split(jax.random.key(2), steps):
        current, inner, reward = step(policy, key, current, inner)
        total += reward
    return total


with jax.disable_jit():  # gymnax compiles its own step; here we want to see what that saves
    measure("1. Python loop", lambda: python_loop(10), steps=10, calls=1)

# %% [markdown]
# ## 2. `jit`: one step is one program
#
# The step is traced once and compiled; XLA fuses its operations. Python still calls it for every step.

# %%
jitted = jax.jit(step)


def loop_of_programs(steps: int):
    current, inner = obs, state
    for key in jax.random.split(jax.random.key(2), steps):
        current, inner, _ = jitted(policy, key, current, inner)
    return current


measure("2. jit of a step", lambda: loop_of_programs(1000), steps=1000)

# %% [markdown]
# ## 3. `vmap`: many environments in a step
#
# The function of one environment becomes that of 64. The calls cost the same, and each does 64 times as much.

# %%
NUM_ENVS = 64
many_steps = jax.jit(jax.vmap(step, in_axes=(None, 0, 0, 0)))
many_obs, many_states = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(jax.random.key(1), NUM_ENVS), params)


def loop_over_many(steps: int):
    current, inner = many_obs, many_states
    for keys in jax.random.split(jax.random.key(2), (steps, NUM_ENVS)):
        current, inner, _ = many_steps(policy, keys, current, inner)
    return current


measure("3. vmap over environments", lambda: loop_over_many(200), steps=200 * NUM_ENVS)

# %% [markdown]
# ## 4. `scan`: the loop goes inside
#
# `lax.scan` is the loop as an operation. A whole rollout is one call, so Python's cost per step is gone.


# %%
@jax.jit
def rollout(policy, key, current, inner):
    def body(carry, keys):
        current, inner, reward = jax.vmap(step, in_axes=(None, 0, 0, 0))(policy, keys, *carry)
        return (current, inner), reward

    return jax.lax.scan(body, (current, inner), jax.random.split(key, (200, NUM_ENVS)))


measure("4. scan over steps", lambda: rollout(policy, jax.random.key(2), many_obs, many_states), steps=200 * NUM_ENVS)

# %% [markdown]
# ## 5. Learning, too
#
# benchback's PPO in plain JAX is written that way: `rollout` is a scan over steps, `update` a scan over
# minibatches. Its **unit** says how much one program covers. `phase`: rollout and update are two programs.
# `iteration`: both are one. `chunk`: a scan over iterations; with all of them, training is one program. The batch
# is small here, so that what a call costs can be seen.

# %%
config = registry.config("ppo")(num_envs=8, num_steps=16, num_minibatches=2, num_epochs=2, hidden_sizes=(32, 32))
CHUNK = 20


def ppo(backend_name: str, mode: str, unit: str, family: str = "jax", env_id: str = "gymnax/CartPole-v1"):
    """A function that trains on for `CHUNK` iterations and waits for the result."""
    make, backend = registry.load("ppo", backend_name)
    agent = make(config, envs.make(env_id, config.num_envs, family))
    agent = registry.execute(agent, backend, mode, unit, CHUNK)
    state = start(agent, seed=0)

    def train_on():
        nonlocal state
        for _ in range(1 if unit == "chunk" else CHUNK):
            state, metrics = advance(agent, state)
        backend.block(metrics)

    return train_on


def in_turns(programs: dict[str, Any], rounds: int = 11) -> dict[str, np.ndarray]:
    """Seconds of each program in every round; in a round each has one turn, so that a busy moment hits all of them."""
    for train_on in programs.values():
        train_on()
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, train_on in programs.items():
            begun = time.perf_counter()
            train_on()
            seconds[name].append(time.perf_counter() - begun)
    return {name: np.array(x) for name, x in seconds.items()}


steps = CHUNK * config.batch_size
for unit, seconds in in_turns({unit: ppo("purejax", "jit", unit) for unit in ("phase", "iteration", "chunk")}).items():
    name = f"5. PPO, plain JAX, unit {unit}"
    speeds[name] = steps / float(np.median(seconds))
    print(f"{name}: {speeds[name]:,.0f} environment steps/s")

# %%
frame = pl.DataFrame({"step": list(speeds), "steps/s": list(speeds.values())})
alt.Chart(frame).mark_bar().encode(
    alt.X("steps/s")
    .scale(type="log", domainMin=1)
    .axis(format="~s")
    .title("environment steps per second, logarithmic"),
    alt.Y("step").sort(None).title(None).axis(labelLimit=300),
    x2=alt.datum(1),
).properties(width=420, height=220)

# %% [markdown]
# The first four only collect; the last three also learn, so their bars start anew. What remains between units is
# what Python does between programs.
#
# ## Every framework's way of saying it
#
# The gradient step of PPO, `learn`, as each file of `benchback/algorithms/ppo/` has it. What differs is where
# parameters live: in trees that are passed around (plain JAX, Linen, Haiku), in a module that is a tree (Equinox),
# in objects that are updated in place (NNX, PyTorch).


# %%
def source_of(backend_name: str, function: str) -> str:
    """The code of a function inside the backend's `make`."""
    source = inspect.getsource(import_module(f"benchback.algorithms.ppo.{backend_name}"))
    found = [x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.FunctionDef) and x.name == function]
    lines = source.splitlines()[found[0].lineno - 1 : found[0].end_lineno]
    return "\n".join(line[4:] for line in lines)


for name, spec in registry.BACKENDS.items():
    print(f"# {spec.title}\n{source_of(name, 'minibatch_step' if spec.family == 'torch' else 'learn')}\n")

# %% [markdown]
# And what they do with it here: how many times as long as plain JAX, in turns. Each JAX backend runs in its best
# mode, PyTorch with its own environment and not compiled (`compile` takes half a minute to start, and then saves a
# part of it). All of them share one process, once: a glimpse. For a comparison that can be believed, `benchback run
# smoke`.

# %%
programs = {
    spec.title: ppo(name, "none", "phase", "torch", "torch/CartPole-v1")
    if spec.family == "torch"
    else ppo(name, spec.best, "phase")
    for name, spec in registry.BACKENDS.items()
}
seconds = in_turns(programs)
ratios = {name: np.median(x / seconds["plain JAX"]) for name, x in seconds.items()}
frame = pl.DataFrame({"backend": list(ratios), "ratio": [float(x) for x in ratios.values()]})
for name, ratio in ratios.items():
    print(f"{name:12}{ratio:6.2f} times as long")
alt.Chart(frame).mark_bar().encode(
    alt.X("ratio").title("times as long as plain JAX, learning included"), alt.Y("backend").sort(None).title(None)
).properties(width=420, height=160)

# %% [markdown]
# ## What to take with you
#
# - Compile the largest piece that you can: a step is too small, a rollout is good, training is best.
# - A batch of environments makes calls fewer, a scan makes them vanish.
# - PyTorch has no counterpart of `scan`: `torch.compile` makes each call cheaper, and larger batches and networks
#   make calls fewer.
# - Inside one program, frameworks hardly differ. Choose by how the code reads: the site shows them side by side.
