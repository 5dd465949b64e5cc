"""A search that finds a better PPO than the defaults on two environments, confirmed on fresh seeds.

    NPROC=1 python benchmarks/search.py [--quick] [--env gymnax/Pendulum-v1]

Four floats are searched by a population of 64 points x 3 seeds in one program; then the best point and the defaults are
trained again on 10 seeds that the search has not seen. Both have the same sizes and the same number of steps, so that
the floats alone make the difference. Broken off and started again it goes on; remove runs/search-* to start anew. It
takes about ten minutes on one core, two with --quick.
"""

import argparse
import time
from pathlib import Path

from benchback.cli.arguments import limit_threads
from benchback.tools.tune import page
from benchback.tools.tune.confirm import confirm, sentences
from benchback.tools.tune.result import Outcome, label, lines_from
from benchback.tools.tune.searching import Search, Settings, find_programs, full_length, open_search, train_programs
from benchback.tools.tune.space import Space, varied

ENVIRONMENTS = {"gymnax/CartPole-v1": 100, "gymnax/Pendulum-v1": 100}
"""Environment -> iterations, of 1024 steps each."""
SIZES = {"num_envs": 8, "num_steps": 128, "num_epochs": 4, "num_minibatches": 4, "unit": "chunk", "chunk": 10}
VARIED = {
    "learning_rate": "log:1e-4..1e-2",
    "gamma": "0.95..0.999",
    "entropy_coefficient": "log:1e-4..1e-1",
    "clip": "0.1..0.4",
}


def searched(env: str, iterations: int, points: int, seeds: int, fresh: int) -> tuple[Outcome, list[str]]:
    """The outcome of a search, and what fresh seeds say about its best point."""
    name = env.rpartition("/")[2].lower()
    base = {"algorithm": "ppo", "backend": "purejax", "env": env, "num_iterations": iterations, **SIZES}
    space = varied(Space(f"search-{name}", base, points=points, seeds=seeds, sampling="sobol"), VARIED)
    search = Search(space, Settings(), 0, Path("runs") / f"search-{name}-{points}x{seeds}x{iterations}")
    programs = find_programs(search)
    open_search(search)
    lines = lines_from(train_programs(search, programs), seeds)
    outcome = Outcome(space.name, lines, seeds, full_length(search, lines[0]["values"]), method="population")
    confirmed = confirm(search, lines[0]["values"], fresh)
    page.write(outcome, search.out, confirmed)
    return outcome, sentences(confirmed)


def main() -> None:
    """Search and confirm on both environments, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few points, few steps: a look at how it works")
    parser.add_argument("--env", choices=[*ENVIRONMENTS], nargs="+", default=[*ENVIRONMENTS])
    flags = parser.parse_args()
    limit_threads(1)
    for env in flags.env:
        started = time.perf_counter()
        given = (env, 20, 16, 2, 5) if flags.quick else (env, ENVIRONMENTS[env], 64, 3, 10)
        outcome, told = searched(*given)
        best = outcome.lines[0]
        print(f"{env}: {len(outcome.lines)} points x {outcome.seeds} seeds, {time.perf_counter() - started:.0f} s")
        print(f"  best of the search: {label(best['values'])}, return {best['score']:.1f} +- {best['std']:.1f}")
        print("  " + "\n  ".join(told), flush=True)


if __name__ == "__main__":
    main()
