"""How well do we learn beside stable-baselines3, sbx and rejax? Writes docs/learning/comparison.csv, charts and tables.

    python benchmarks/learning_curves.py --tasks ppo-cartpole dqn-cartpole --sides purejax rejax --seeds 10

Every side has the same hyper-parameters, the same number of environment steps and the same evaluation: the mean return
of one episode in each of ten fresh environments, acting greedily, at evenly spaced moments. A seed is kept as soon as
it is done, and what is in the csv is not run again: stop at any time, go on with the same command. Without sides all
that the task has are run. Peers run in the virtual environments of `benchback peers`, made if they are not there.
"""

import argparse
import csv
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchback import registry
from benchback.agent import start
from benchback.cli.arguments import limit_threads
from benchback.measure.peers.environments import prepare
from benchback.measure.peers.sides import PROGRAMS, REJAX, SBX
from benchback.measure.peers.work import TASKS as PEERS_TASKS
from benchback.measure.peers.work import Workload
from benchback.stats.returns import Band, interquartile_mean, stratified_bootstrap
from benchback.training import advance
from benchback.training.evaluate import Evaluator
from benchback.training.run import Run, build

ROOT = Path(__file__).parent.parent
FOLDER, DOCUMENT = ROOT / "docs" / "learning", ROOT / "docs" / "learning.md"
TABLE = FOLDER / "comparison.csv"
COLUMNS = ("task", "side", "seed", "env_steps", "greedy_return")
EPISODES, EVALUATION_SEED, MOST_STEPS = 10, 1000, 1000
FALL = 0.2
"""Share of the return that was to be reached whose loss counts as forgetting."""
LEAST = 5
"""Seeds that an interval needs."""
Row = dict[str, Any]
Curve = list[tuple[int, float]]
"""Environment steps -> mean greedy return."""


@dataclass(frozen=True)
class Task:
    """What is to be learnt, by whom."""

    algorithm: str
    env: str
    """The name that all suites have for it."""
    suite: str
    """Where our backends get it."""
    solved: float
    """The return that counts as having learnt it."""
    sides: tuple[str, ...]
    fields: Mapping[str, Any]
    """Where the run differs from the defaults."""
    points: int = 20
    """Evaluations along a training."""
    differs: str = ""
    """What some sides do otherwise, a sentence each."""

    def run(self, backend: str) -> Run:
        """The run in one of our backends; in the JAX family a program lasts from one evaluation to the next."""
        named = {"algorithm": self.algorithm, "env": f"{self.suite}/{self.env}", "backend": backend}
        run = Run.from_dict(named | dict(self.fields))
        if run.framework == "torch":
            return run
        return Run.from_dict(
            named | dict(self.fields) | {"unit": "chunk", "chunk": run.config.num_iterations // self.points}
        )

    @property
    def env_steps(self) -> int:
        """Environment steps of a training."""
        config = self.run("purejax").config
        return config.num_iterations * config.batch_size


OWN = ("purejax", "equinox")
BASELINES = ("stable_baselines3", "sbx")
PPO = {"num_steps": 128, "num_minibatches": 4, "num_epochs": 4, "hidden_sizes": [64, 64], "anneal": False}
PPO_DIFFERS = (
    "rejax clips each element of a gradient instead of its norm, starts from LeCun normal weights and treats time "
    "limits as terminal; sbx does not clip values."
)
TD3_DIFFERS = (
    "The actor of sbx follows the lower of both critics and its targets move in every gradient step; the actor of "
    "rejax follows the mean of both. Actions of stable-baselines3 and sbx are random until the first gradient step."
)
TASKS = {
    "ppo-cartpole": Task(
        "ppo",
        "CartPole-v1",
        "gymnax",
        475,
        (*OWN, *BASELINES, "rejax"),
        PPO | {"num_envs": 4, "num_iterations": 200},
        differs=PPO_DIFFERS,
    ),
    "ppo-breakout": Task(
        "ppo",
        "Breakout-MinAtar",
        "gymnax",
        10,
        (*OWN, "rejax"),
        PPO | {"num_envs": 32, "num_iterations": 240},
        differs=PPO_DIFFERS,
    ),
    "ppo-halfcheetah": Task(
        "ppo",
        "HalfCheetah-v5",
        "gymnasium",
        2000,
        (*OWN, *BASELINES),
        PPO
        | {
            "num_envs": 8,
            "num_steps": 256,
            "num_minibatches": 32,
            "num_epochs": 10,
            "num_iterations": 480,
            "learning_rate": 3e-4,
            "entropy_coefficient": 0.0,
            "normalise_obs": True,
            "normalise_reward": True,
        },
        differs="The baselines normalise by VecNormalize. " + PPO_DIFFERS,
    ),
    "dqn-cartpole": Task(
        "dqn",
        "CartPole-v1",
        "gymnax",
        475,
        (*OWN, *BASELINES, "rejax"),
        {},
        points=25,
        differs="stable-baselines3 and sbx are given the squared error in the place of Huber's loss; the second layer "
        "of sbx is as wide as the first; rejax treats time limits as terminal.",
    ),
    "td3-pendulum": Task(
        "td3",
        "Pendulum-v1",
        "gymnax",
        -200,
        (*OWN, *BASELINES, "rejax"),
        {
            "num_steps": 1,
            "num_updates": 1,
            "num_iterations": 10_000,
            "start_steps": 1_000,
            "update_after": 1_000,
            "replay_capacity": 10_000,
            "hidden_sizes": [64, 64],
        },
        differs=TD3_DIFFERS,
    ),
    "td3-halfcheetah-30k": Task(
        "td3",
        "HalfCheetah-v5",
        "gymnasium",
        3000,
        ("purejax", *BASELINES),
        {"num_iterations": 600, "replay_capacity": 30_000},
        points=3,
        differs=TD3_DIFFERS,
    ),
    "td3-halfcheetah": Task(
        "td3",
        "HalfCheetah-v5",
        "gymnasium",
        5000,
        (*OWN, *BASELINES),
        {"num_iterations": 4_000, "replay_capacity": 200_000},
        differs=TD3_DIFFERS,
    ),
}


PEERS = {"stable_baselines3": SBX, "sbx": SBX, "rejax": REJAX}
"""Library -> its virtual environment; that of sbx holds stable-baselines3 too, of the same version as alone."""


def own_curves(task: Task, backend_name: str, seeds: Iterable[int]) -> Iterator[tuple[int, Curve]]:
    """One of our backends, one seed after another in the same programs."""
    run = task.run(backend_name)
    agent, backend = build(run)
    evaluate = Evaluator(run, EPISODES)
    calls = run.config.num_iterations // run.length
    for seed in seeds:
        state, curve = start(agent, seed), []
        for call in range(1, calls + 1):
            state, metrics = advance(agent, state)
            backend.fetch(metrics)
            if call % (calls // task.points) == 0:
                returns = evaluate(agent.export(state), EVALUATION_SEED, MOST_STEPS)
                curve.append((call * run.length * run.config.batch_size, float(returns.mean())))
        yield seed, curve


def peer_curves(task: Task, peer: str, seeds: list[int]) -> Iterator[tuple[int, Curve]]:
    """A peer's program, which prints a line for each seed."""
    python = prepare(PEERS[peer], lambda: True)
    config = task.run("purejax").config
    work = Workload("learning", PEERS_TASKS[task.env], config).to_dict()
    normalised = {name: getattr(config, name, False) for name in ("normalise_obs", "normalise_reward")}
    work |= {"hidden_sizes": list(config.hidden), "seed": 0} | normalised
    job = {"work": work, "options": {"module": peer}, "points": task.points, "episodes": EPISODES}
    command = [str(python), str(Path(__file__).with_name("learning_curves_peers.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(job | {"seeds": seeds, "programs": str(PROGRAMS)}))
    process.stdin.close()
    for line in process.stdout:
        found = json.loads(line)
        yield found["seed"], [(int(n), float(x)) for n, x in found["curve"]]
    if process.wait():
        raise SystemExit(f"{peer} failed in {task.algorithm} on {task.env}")


def kept() -> list[Row]:
    """What earlier calls have found."""
    if not TABLE.exists():
        return []
    types = {"task": str, "side": str, "seed": int, "env_steps": int, "greedy_return": float}
    with TABLE.open(newline="") as file:
        return [{name: types[name](x) for name, x in row.items()} for row in csv.DictReader(file)]


def keep(task: str, side: str, seed: int, curve: Curve) -> None:
    """Append the curve of a seed."""
    FOLDER.mkdir(exist_ok=True)
    new = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        writer.writerows((task, side, seed, env_steps, round(x, 2)) for env_steps, x in curve)


def curves(rows: Iterable[Row], task: str) -> dict[str, np.ndarray]:
    """Side -> returns [seeds, points] of a task, in the order of the sides."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row["task"] == task:
            found.setdefault(row["side"], {}).setdefault(row["seed"], []).append(row["greedy_return"])
    order = [*(side for side in found if side not in TASKS[task].sides), *TASKS[task].sides]
    return {side: np.array([found[side][seed] for seed in sorted(found[side])]) for side in order if side in found}


def band(scores: np.ndarray) -> Band:
    """The interquartile mean over seeds and its 95 % bootstrap interval."""
    return stratified_bootstrap([scores], interquartile_mean, np.random.default_rng(0))


def summary(rows: list[Row], name: str) -> list[str]:
    """The table of a task: who gets how far, who stays there."""
    task, table = TASKS[name], []
    for side, scores in curves(rows, name).items():
        reached = (scores >= task.solved).any(axis=1)
        first = np.where(reached, (scores >= task.solved).argmax(axis=1) + 1, np.inf) * task.env_steps / task.points
        median = float(np.median(first))
        forgot = [later_lowest(curve, task.solved) < task.solved - FALL * abs(task.solved) for curve in scores]
        end, along = over_seeds(scores[:, -1]), over_seeds(scores.mean(axis=1))
        table.append(
            f"| {side} | {len(scores)} | {end} | {along} | {reached.sum()} of {len(scores)} | "
            f"{f'{median:,.0f}' if np.isfinite(median) else '-'} | {sum(forgot)} |"
        )
    if not table:
        return []
    fields = ", ".join(f"{k}={v}" for k, v in task.fields.items()) or "the default hyper-parameters"
    return [
        f"### {name}: {task.algorithm.upper()} on {task.env}, {task.env_steps:,} steps",
        "",
        f"With {fields}. {task.differs}",
        "",
        f"| side | seeds | return at the end | mean along the training | reached {task.solved:g} | after (median) | "
        "fell below it by a fifth later |",
        "|---|---|---|---|---|---|---|",
        *table,
        "",
        f"![Greedy return of {name} along training](learning/{name}.png)",
        "",
    ]


def later_lowest(curve: np.ndarray, solved: float) -> float:
    """The lowest return after the first that counts as having learnt it; infinite if there is none."""
    reached = np.flatnonzero(curve >= solved)
    return float(curve[reached[0] :].min()) if len(reached) else np.inf


def over_seeds(scores: np.ndarray) -> str:
    """The interquartile mean over seeds and its interval; of few seeds, the return of each."""
    if len(scores) < LEAST:
        return ", ".join(f"{x:.0f}" for x in scores)
    found = band(scores)
    digits = 0 if abs(found.estimate) >= 100 else 1
    return f"{found.estimate:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def draw(rows: list[Row], name: str) -> None:
    """Interquartile mean over seeds against steps, with its interval."""
    import altair as alt

    task, points = TASKS[name], []
    for side, scores in curves(rows, name).items():
        found = band(scores)
        steps = np.arange(1, scores.shape[1] + 1) * task.env_steps // task.points
        points += [
            {"side": f"{side} ({len(scores)})", "steps": int(n), "return": float(x), "low": float(a), "high": float(b)}
            for n, x, a, b in zip(steps, found.estimate, found.low, found.high, strict=True)
        ]
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("steps:Q", title="environment steps"),
        color=alt.Color("side:N", title="side (seeds)", legend=alt.Legend(symbolOpacity=1)),
    )
    area = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title="greedy return"), y2="high:Q")
    chart = area + base.mark_line().encode(y="return:Q")
    chart.properties(width=520, height=300, title=name).save(str(FOLDER / f"{name}.png"), scale_factor=2)


def write_between(document: Path, name: str, lines: list[str]) -> None:
    """Replace what the document has between the comments `<!-- name -->` and `<!-- end of name -->`."""
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, rest = document.read_text().split(first)
    document.write_text(head + first + "\n".join(["", *lines]) + last + rest.split(last)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", choices=TASKS, nargs="*", default=list(TASKS))
    parser.add_argument("--sides", choices=(*registry.BACKENDS, *PEERS), nargs="+")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--report", action="store_true", help="run nothing, write charts and tables")
    arguments = parser.parse_args()
    limit_threads(1)
    for name in [] if arguments.report else arguments.tasks:
        for side in arguments.sides or TASKS[name].sides:
            done = {row["seed"] for row in kept() if (row["task"], row["side"]) == (name, side)}
            seeds = [seed for seed in range(arguments.seeds) if seed not in done]
            if not seeds:
                continue
            task = TASKS[name]
            found = peer_curves(task, side, seeds) if side in PEERS else own_curves(task, side, seeds)
            for seed, curve in found:
                keep(name, side, seed, curve)
                print(name, side, seed, f"{curve[-1][1]:.1f} after {curve[-1][0]:,} steps", flush=True)
    rows = kept()
    for name in TASKS:
        if summary(rows, name):
            draw(rows, name)
    write_between(DOCUMENT, "comparison", [line for name in TASKS for line in summary(rows, name)])


if __name__ == "__main__":
    main()
