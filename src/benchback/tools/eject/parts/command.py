"""The command line of an ejected file: a flag for every field of its Config."""

import argparse
import time
from dataclasses import fields
from pathlib import Path

from benchback.algorithms.ppo.config import Config
from benchback.tools.eject.parts.loop import save, train

SEED = 0


def main() -> None:
    """Train as the command line says, and write a checkpoint."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in fields(Config):
        many = isinstance(field.default, tuple)
        kind = type(field.default[0] if many else field.default)
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=kind, nargs="+" if many else None, default=field.default, help=kind.__name__)
    parser.add_argument("--seed", type=int, default=SEED, help="seed of weights, environment, actions and shuffles")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.safetensors"), help="file to write")
    parser.add_argument("--resume", type=Path, help="checkpoint to continue from")
    given = vars(parser.parse_args())
    seed, checkpoint, resume = (given.pop(name) for name in ("seed", "checkpoint", "resume"))
    config = Config(**{name: tuple(x) if isinstance(x, list) else x for name, x in given.items()})
    started = time.perf_counter()
    for iteration, state, metrics in train(config, seed, resume):
        elapsed_s = time.perf_counter() - started
        done = f"iteration {iteration}/{config.num_iterations}"
        print(f"{done}  return {metrics['episode_return']:.1f}  {elapsed_s:.1f} s", flush=True)
        if iteration == config.num_iterations:
            save(checkpoint, state, iteration)
