"""Does memory help where it is needed? Networks with and without one in environments that hide something.

`python benchmarks/recurrent.py` trains every task and prints the tables of docs/recurrent.md: a population of seeds in
each JAX backend, and in PyTorch a few seeds one after another. UmbrellaChain hides nothing and is trained in plain JAX
only. What is done is kept in runs/recurrent.jsonl, so a run that was broken off goes on where it stopped;
remove the file to start anew.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchback import registry
from benchback.agent import start
from benchback.cli.arguments import limit_threads
from benchback.population import members
from benchback.training import advance
from benchback.training.evaluate import evaluate
from benchback.training.run import Run, build, environment

KEPT = Path(__file__).parent.parent / "runs" / "recurrent.jsonl"
SEED = 1000
"""Of the judging episodes, which no training has seen."""
REFERENCE = "purejax"
TORCH_SEEDS = 3


@dataclass(frozen=True)
class Task:
    """An environment, what it hides, and how long it is trained."""

    env: str
    hidden: str
    seeds: int
    fields: dict[str, Any] = field(default_factory=dict)
    episodes: int = 64
    """Episodes of greedy play by which a trained agent is judged."""


SMALL = {"num_epochs": 4, "num_minibatches": 4, "learning_rate": 1e-3, "num_envs": 16}
TASKS = {
    "memory-chain": Task(
        "gymnax/MemoryChain-bsuite+param.memory_length=10",
        "what must be answered at the end, after the first two steps",
        8,
        SMALL | {"num_steps": 22, "num_iterations": 200},
    ),
    "cartpole": Task(
        "gymnax/CartPole-v1+observe=0,2",
        "both velocities",
        4,
        SMALL | {"num_steps": 128, "num_iterations": 400, "normalise_obs": True, "normalise_reward": True},
    ),
    "pendulum": Task(
        "gymnax/Pendulum-v1+observe=0,1",
        "the angular velocity",
        4,
        {"num_envs": 64, "num_steps": 100, "num_iterations": 100, "num_epochs": 4, "num_minibatches": 8}
        | {"learning_rate": 1e-3, "gamma": 0.95, "entropy_coefficient": 0.0, "clip_value": False}
        | {"normalise_obs": True, "normalise_reward": True},
    ),
    "umbrella-chain": Task(
        "gymnax/UmbrellaChain-bsuite",
        "",
        4,
        SMALL | {"num_steps": 20, "num_iterations": 200, "gamma": 1.0, "gae_lambda": 1.0},
        # Most of a return is noise, of a standard deviation of 3 to 4.
        4096,
    ),
}
WIDTHS = {"mlp": (64, 64), "gru": (32,)}


def run_of(task: Task, network: str, backend: str) -> Run:
    """The training of a task with a network in a backend."""
    fields = task.fields | {"network": network, "hidden_sizes": WIDTHS[network], "env": task.env, "backend": backend}
    return Run.from_dict({"algorithm": "ppo", "unit": "phase", "mode": "best"} | fields)


def of_seeds(run: Run, seeds: int, episodes: int) -> list[float]:
    """Mean greedy returns of members with these seeds, trained in one program."""
    make, backend = registry.load(run.algorithm, run.backend)
    agent = make(run.config, environment(run, run.config.num_envs))
    sizes = {"size": seeds, "group": seeds}
    many = members.execute(agent, backend, run.compile_mode, "phase", 1, **sizes)
    state = many.init(many.key(0), agent.hyper)
    for _ in range(run.config.num_iterations):
        state, _ = advance(many, state)
    single = members.view(agent, backend)
    weights = [single.export(members.member(many, state, i)) for i in range(seeds)]
    return [float(evaluate(run, each, episodes, SEED).mean()) for each in weights]


def one_after_another(run: Run, seeds: int, episodes: int) -> list[float]:
    """Mean greedy returns of trainings with these seeds, by the same programs."""
    agent, _ = build(run)
    returns = []
    for seed in range(seeds):
        state = start(agent, seed)
        for _ in range(run.config.num_iterations):
            state, _ = advance(agent, state)
        returns.append(float(evaluate(run, agent.export(state), episodes, SEED).mean()))
    return returns


def row(name: str, network: str, backend: str) -> dict[str, Any]:
    """What was reached, and in how many seconds of this process."""
    task, began = TASKS[name], time.process_time()
    run = run_of(task, network, backend)
    if run.framework == "torch":
        returns = one_after_another(run, TORCH_SEEDS, task.episodes)
    else:
        returns = of_seeds(run, task.seeds, task.episodes)
    steps = run.config.batch_size * run.config.num_iterations
    row = {"task": name, "network": network, "backend": backend, "returns": returns, "env_steps": steps}
    return row | {"cpu_s": time.process_time() - began}


def wanted() -> list[tuple[str, str, str]]:
    """Everything that is trained: task, network and backend."""
    population = [(name, network, REFERENCE) for name in TASKS for network in WIDTHS]
    hiding = [name for name, task in TASKS.items() if task.hidden]
    others = [backend for backend in registry.BUILT_IN_BACKENDS if backend != REFERENCE]
    return population + [(name, "gru", backend) for name in hiding for backend in others]


def line(row: dict[str, Any]) -> str:
    """A line of the table."""
    returns = row["returns"]
    spread = f"{min(returns):.2f} to {max(returns):.2f}" if len(returns) > 1 else ""
    cells = row["task"], row["network"], row["backend"], len(returns), f"{row['env_steps']:,}"
    return f"| {' | '.join(map(str, cells))} | {statistics.median(returns):.2f} | {spread} | {row['cpu_s']:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words that a row must have: a task, network or backend")
    only = set(parser.parse_args().only)
    limit_threads(1)
    KEPT.parent.mkdir(exist_ok=True)
    done = [json.loads(text) for text in KEPT.read_text().splitlines()] if KEPT.exists() else []
    for each in (x for x in wanted() if only <= set(x)):
        found = next((x for x in done if (x["task"], x["network"], x["backend"]) == each), None)
        if found is None:
            found = row(*each)
            with KEPT.open("a") as file:
                file.write(json.dumps(found) + "\n")
        print(line(found), flush=True)


if __name__ == "__main__":
    main()
