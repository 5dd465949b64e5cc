# %% [markdown]
# # Thousands of agents at once
#
# One program trains 2048 agents, each with its own seed, learning rate and clipping range. It is compiled once,
# because floats are data of the program; only what gives a shape is part of it. On one core this takes about a
# minute.

# %%
import time

import altair as alt
import numpy as np
import polars as pl

from benchback.population.spec import Population, members_of
from benchback.population.training import likely, train_members
from benchback.training import train
from benchback.training.run import Run

_ = alt.renderers.enable("png")

# %% [markdown]
# ## What is trained
#
# PPO on CartPole with small networks and little experience: 40 iterations of 4 environments x 32 steps, 5120 steps
# for each agent. Two floats vary, placed by a Sobol sequence, and every point is trained with two seeds.

# %%
run = Run.from_dict(
    {
        "algorithm": "ppo",
        "env": "gymnax/CartPole-v1",
        "backend": "purejax",
        "unit": "chunk",
        "chunk": 10,
        "num_iterations": 40,
        "num_envs": 4,
        "num_steps": 32,
        "num_minibatches": 2,
        "num_epochs": 4,
        "hidden_sizes": [16, 16],
    }
)
asked = Population({"learning_rate": "log:1e-4..1e-1", "clip": "0.05..0.5"}, points=1024, seeds=2)
members = members_of(asked, run)
print(f"{len(members)} agents; they run side by side in groups of {likely(run, len(members)).group}")

# %% [markdown]
# ## Training them
#
# `train_members` is a generator: it yields after every call of the program, here after ten iterations, with the
# metrics of every agent. (The command `benchback train ppo --vary learning_rate=log:1e-4..1e-1 --vary
# clip=0.05..0.5 --population 1024 --seeds 2` does the same into a folder.)

# %%
begun = time.perf_counter()
curves, started = [], 0.0
for progress in train_members(run, members):
    started = started or time.perf_counter() - begun
    curves.append(progress.metrics["episode_return"])  # [iterations of this call, agents]
seconds = time.perf_counter() - begun
returns = np.concatenate(curves)
steps = len(members) * run.config.num_iterations * run.config.batch_size
print(f"{steps:,} steps of {len(members)} agents in {seconds:.0f} s, the first {started:.0f} s with compiling")

# %% [markdown]
# What one agent alone achieves, calls that compile left out on both sides. The two are timed one after the other, so
# a busy moment falls on one of them: take it as rough.

# %%
after = (1 - run.length / run.config.num_iterations) * steps / (seconds - started)
longer = Run.from_dict({**run.to_dict(), "num_iterations": 1000})
for progress_alone in train(longer):
    if progress_alone.iteration == longer.length:
        begun = time.perf_counter()
alone = (longer.config.num_iterations - longer.length) * longer.config.batch_size / (time.perf_counter() - begun)
print(f"one agent: {alone:,.0f} steps/s; {len(members)} agents: {after:,.0f} steps/s together")

# %% [markdown]
# ## All curves
#
# The mean hides what happens: some agents learn, many do not. NaN marks iterations in which no episode of an agent
# ended.

# %%
quantiles = np.nanquantile(returns, [0.1, 0.25, 0.5, 0.75, 0.9], axis=1)
frame = pl.DataFrame(
    {
        "steps": (np.arange(len(returns)) + 1) * run.config.batch_size,
        **dict(zip(("low", "quarter", "median", "three quarters", "high"), quantiles, strict=True)),
    }
)
base = alt.Chart(frame).encode(alt.X("steps").title("steps of each agent"))
(
    base.mark_area(opacity=0.2).encode(alt.Y("low").title("return"), alt.Y2("high"))
    + base.mark_area(opacity=0.35).encode(alt.Y("quarter"), alt.Y2("three quarters"))
    + base.mark_line().encode(alt.Y("median"))
).properties(width=460, height=220, title="Median, half and four fifths of 2048 agents")

# %% [markdown]
# ## Which learning rate?
#
# A response surface instead of a guess. Score: mean return over the last 16 iterations, 512 steps, in which every
# environment ends an episode, by CartPole's limit of 500 at the latest.

# %%
score = np.nanmean(returns[-16:], axis=0)
points = pl.DataFrame(
    {
        "learning_rate": members.values["learning_rate"],
        "clip": members.values["clip"],
        "seed": members.seed,
        "score": score,
    }
).with_columns(pl.col("learning_rate").log10().alias("exponent"))
alt.Chart(points).mark_rect().encode(
    alt.X("exponent").bin(step=0.2).title("learning rate, power of ten"),
    alt.Y("clip").bin(step=0.05),
    alt.Color("mean(score)").title("return at the end").scale(scheme="viridis"),
).properties(width=420, height=220)

# %% [markdown]
# ## The best of many is lucky
#
# The best of 2048 was chosen by the very episodes that it is judged by. Every point was trained with two seeds:
# choose by the first, then look at the second.

# %%
first, second = (points.filter(pl.col("seed") == seed)["score"].to_numpy() for seed in (0, 1))
best = np.argsort(first)[::-1]
for count in (1, 10, 100):
    chosen = best[:count]
    print(f"best {count:3} by seed 0: {first[chosen].mean():5.0f}, with seed 1: {second[chosen].mean():5.0f}")
print(f"all: {first.mean():.0f} and {second.mean():.0f}")

# %% [markdown]
# So average over neighbours, or over more seeds, before you believe a setting:

# %%
nearby = points.group_by(pl.col("exponent").round(1))
summary = nearby.agg(pl.col("score").mean(), pl.col("score").std().alias("std"), pl.len()).sort("score")
for exponent, mean, std, count in summary.tail(3).reverse().iter_rows():
    print(f"learning rate {10**exponent:.4f}: {mean:.0f} +- {std / count**0.5:.0f} ({count} agents)")

# %% [markdown]
# ## One of them, as an agent of its own
#
# A member is the same agent as if it had been trained alone. Its weights are those of any checkpoint, for any
# backend.

# %%
chosen = int(np.nanargmax(score))
weights = progress.export_member(chosen)
print(
    f"member {chosen}: learning rate {members.values['learning_rate'][chosen]}, clip {members.values['clip'][chosen]}"
)
print({name: x.shape for name, x in weights.items() if name.startswith("actor/")})
