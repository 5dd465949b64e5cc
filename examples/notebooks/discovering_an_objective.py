# %% [markdown]
# # Discovering an objective
#
# PPO keeps a new policy near the old one by clipping the ratio of their probabilities. Clipping is one drift among
# many; here a drift is a small network, and evolution looks for its weights by training whole populations with them. On
# one core this takes about two minutes, half of them compiling.

# %%
import tempfile
from pathlib import Path

import altair as alt
import numpy as np

from benchback.tools.discover import figures
from benchback.tools.discover.evaluation import FOUND, contest, mean_text, rivals_of, sentence
from benchback.tools.discover.fitness import Trainings
from benchback.tools.discover.genomes import no_drift
from benchback.tools.discover.search import Asked, evolve
from benchback.tools.discover.strategies import Settings
from benchback.training.run import Run

_ = alt.renderers.enable("png")

# %% [markdown]
# ## What is trained
#
# Short trainings of PPO on CartPole with a high learning rate and many epochs on the same data: without anything that
# holds the policy back it often collapses. The drift has eight hidden units over eight features of ratio and advantage,
# 72 numbers. The features vanish at ratio 1 and there are no biases, so whatever the numbers are, the drift is not
# negative, and zero with zero gradient at ratio 1: what the theorem of mirror learning asks for.

# %%
genome = no_drift(width=8, seed=0)
run = Run.from_dict(
    {
        "algorithm": "ppo",
        "env": "gymnax/CartPole-v1",
        "backend": "purejax",
        "num_envs": 8,
        "num_steps": 64,
        "num_iterations": 20,
        "num_epochs": 16,
        "num_minibatches": 2,
        "hidden_sizes": [32, 32],
        "learning_rate": 5e-3,
        "anneal": False,
        "entropy_coefficient": 0.0,
        "surrogate": "learned",
        "objective": list(genome.begin),
    }
)
asked = Asked(
    run,
    genome,
    envs=(run.env,),
    strategy="openes",
    settings=Settings(agents=30, sigma=0.3, rate=0.1, seed=0),
    generations=6,
    seeds=2,
)
print(f"{len(genome.begin)} numbers; {(30 + 2) * 2} trainings in each generation, as one program")

# %% [markdown]
# ## Evolution
#
# `openes` tries 30 drifts around a mean, in pairs of opposite signs, and moves the mean towards those whose agents had
# the higher returns at the end of their training. All drifts of a generation are trained with the same two seeds. The
# mean itself and the drift that it began with, which is none at all, are trained with them too. (The command
# `benchback discover` does the same into a folder, for more generations, beside random search.)

# %%
trainings = Trainings(genome)
with tempfile.TemporaryDirectory() as folder:
    found = evolve(asked, Path(folder) / "search.safetensors", trainings)
alt.Chart.from_dict(figures.fitness(found.history, "Six generations"))

# %% [markdown]
# ## What it does
#
# The gradient of each objective by the ratio. PPO's clip lets go where the ratio has moved far enough in the direction
# of the advantage; discovered policy optimisation (DPO) pulls it back from there. The drift that was found has seen
# neither.

# %%
weights = genome.fields(found.vector)["objective"]
alt.Chart.from_dict(figures.gradients(run.config, weights))

# %% [markdown]
# ## Whether it is better
#
# The generations chose it by their seeds, so it is trained again with ten others, beside the start, the clip and DPO.

# %%
vectors = {FOUND: found.vector, "start": genome.start}
seeds = np.random.default_rng(1).integers(2**32, size=10).tolist()
result = contest(run, vectors, rivals_of(run), trainings, seeds, evolved_on=True)
for name, scores in result.scores.items():
    print(f"{name:10} {mean_text(scores)}")
for name in ("start", "clip", "drift"):
    print(sentence(result, name))

# %% [markdown]
# One environment, one setting of PPO: a drift found so fits them, and may fit nothing else. `benchback discover --also
# ENV` evolves on several environments, and `--transfer ENV` asks others. The folder it
# leaves has `objective.json`, which `benchback train --surrogate learned --objective` takes in any of the six backends.
