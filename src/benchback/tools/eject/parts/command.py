"""The command line of an ejected file: a flag for every field of its Config."""

import argparse
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchback.algorithms.ppo.config import Config
from benchback.tools.eject.parts.loop import save, train

SEED = 0


def main() -> None:
    """Train as the command line says, and write a checkpoint."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in fields(Config):
        one: Any = field.default[0] if isinstance(field.default, tuple) else field.default
        options = {"type": type(one), "nargs": None if one is field.default else "+", "default": field.default}
        parser.add_argument("--" + field.name.replace("_", "-"), **options, help=type(one).__name__)
    parser.add_argument("--seed", type=int, default=SEED, help="seed of weights, environment, actions and shuffles")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.safetensors"), help="file to write")
    parser.add_argument("--resume", type=Path, help="checkpoint to continue from")
    parsed = vars(parser.parse_args()).items()
    given: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in parsed}
    seed, checkpoint, resume = (given.pop(name) for name in ("seed", "checkpoint", "resume"))
    config, started = Config(**given), time.perf_counter()
    for iteration, state, metrics in train(config, seed, resume):
        done, elapsed_s = f"iteration {iteration}/{config.num_iterations}", time.perf_counter() - started
        print(f"{done}  return {metrics['episode_return']:.1f}  {elapsed_s:.1f} s", flush=True)
        if iteration == config.num_iterations:
            save(checkpoint, state, iteration)
