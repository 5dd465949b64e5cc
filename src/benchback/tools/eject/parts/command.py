"""The command line of an ejected file: a flag for every number of its Config."""

import argparse
import time
from pathlib import Path
from typing import Any

from benchback.algorithms.ppo.config import Config, Hyper
from benchback.tools.eject.parts.loop import mean_return, save, train

SEED = 0


def main() -> None:
    """Train as the command line says, and write a checkpoint."""
    flags = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default in (vars(Config()) | Config().hyper._asdict()).items():
        if name != "hyper":
            kind, nargs = (type(default[0]), "+") if isinstance(default, tuple) else (type(default), None)
            flag = f"--{name.replace('_', '-')}"
            flags.add_argument(flag, type=kind, nargs=nargs, default=default, help=kind.__name__)
    flags.add_argument("--seed", type=int, default=SEED, help="seed of weights, environment, actions and shuffles")
    flags.add_argument("--checkpoint", type=Path, default=Path("checkpoint.safetensors"), help="file to write")
    flags.add_argument("--resume", type=Path, help="checkpoint to continue from")
    given: dict[str, Any] = {key: tuple(x) if isinstance(x, list) else x for key, x in vars(flags.parse_args()).items()}
    seed, checkpoint, resume = (given.pop(name) for name in ("seed", "checkpoint", "resume"))
    given["hyper"] = Hyper(**{name: given.pop(name) for name in Hyper._fields})
    config, started = Config(**given), time.perf_counter()
    for iteration, state, metrics in train(config, seed, resume):
        done, elapsed_s = f"iteration {iteration}/{config.num_iterations}", time.perf_counter() - started
        print(f"{done}  return {mean_return(metrics):.1f}  {elapsed_s:.1f} s", flush=True)
        if iteration == config.num_iterations:
            save(checkpoint, state, iteration)
