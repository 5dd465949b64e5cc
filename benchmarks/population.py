"""Many agents in one program, against PureJaxRL's way and rejax under vmap: the same work, in turns.

    NPROC=1 python benchmarks/population.py [--algorithm ppo] [--members 1 32 256 1024] [--rounds 7] [--groups 8]
                                            [--vectors 256 512]

PPO is workload B: CartPole, 4 environments x 128 steps, 4 minibatches, 4 epochs, two towers of 64-64. DQN is the
published one: CartPole, 10 environments, a minibatch of 128 for each of their steps, a replay of 10,000, 120-84; it
learns from step 1,000 on, so that all timed steps do. Every round runs each side once, in an order drawn anew; ratios
are within a round, above 1 where ours is faster. Theirs are the baselines `measure/peers/programs/purejax_style.py`
and `purejax_dqn.py`, vmapped over seeds and initialised one after another, because the wide batched QR of a vmapped
initialisation can stop XLA's threads. rejax, if `benchback peers` has made its virtual environment, is a resident
process that waits while others have their turn: its own `train_iteration`, vmapped in the same way. One thread each:
set NPROC=1 before starting. Seconds are of processor time, which leaves out the turns of other programs on the core.

XLA uses vectors of 256 bits on processors that have some of 512, too. `--vectors 256 512` compiles PureJaxRL's way and
ours for both, as `XLA_FLAGS=--xla_cpu_prefer_vector_width=512` does; ratios are between sides with equal vectors.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import jax

import benchback
from benchback import envs, registry
from benchback.agent import Gradients, start
from benchback.measure.caches import cache_folder
from benchback.measure.peers.work import WORKLOADS
from benchback.population.members import execute

WORK = WORKLOADS["B"]
ENV = f"gymnax/{WORK.env}"
CONFIGS = {"ppo": WORK.config, "dqn": registry.config("dqn")(learning_starts=1_000)}
BACKEND = "purejax"
REFERENCE = "PureJaxRL's way, vmap"
PROGRAMS = Path(benchback.__file__).parent / "measure" / "peers" / "programs"
REJAX = cache_folder("peers") / "rejax" / "bin" / "python"
XLA_VECTORS = 256
"""Bits of the vectors that XLA prefers on CPUs."""
CALL_STEPS = 2**18
"""Steps of all agents in one program call, about, unless `--steps` says."""


@dataclass
class Side:
    """A program of `iterations`, the state it is at and the processor time each call took."""

    program: Callable[[Any], tuple[Any, Any]]
    state: Any
    compile_s: float
    bytes: float
    seconds: list[float] = field(default_factory=list)

    def call(self) -> None:
        """Run the program once."""
        started = time.process_time()
        self.state, metrics = self.program(self.state)
        jax.block_until_ready((self.state, metrics))
        self.seconds.append(time.process_time() - started)


def compiled(function: Callable[[Any], Any], state: Any, vectors: int) -> Side:
    """The function compiled, with the memory of its state, results and temporaries, and called once."""
    started = time.perf_counter()
    options: Any = {"xla_cpu_prefer_vector_width": vectors}
    program = jax.jit(function, donate_argnums=0).lower(state).compile(compiler_options=options)
    compile_s = time.perf_counter() - started
    memory: Any = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    side = Side(program, state, compile_s, held - memory.alias_size_in_bytes)
    side.call()
    side.seconds.clear()
    return side


class Rejax:
    """A process of rejax's virtual environment that runs its program when asked to."""

    def __init__(self, algorithm: str, size: int, iterations: int) -> None:
        config = CONFIGS[algorithm]
        # Enough calls before the first that counts for a replay to be filled as far as learning needs it.
        warm = 1 + getattr(config, "learning_starts", 0) // (config.batch_size * iterations)
        work = WORK.to_dict() | asdict(config) | {"algorithm": algorithm, "hidden_sizes": config.hidden}
        work["num_iterations"] = 10_000
        given = {"work": work, "size": size, "iterations": iterations, "warm": warm, "programs": str(PROGRAMS)}
        self.process = subprocess.Popen(
            [REJAX, Path(__file__).with_name("population_rejax.py"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ready = self.read()
        self.compile_s, self.bytes, self.seconds = ready["compile_s"], ready["bytes"], list[float]()

    def read(self) -> Any:
        """Its next answer."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or "{}")

    def call(self) -> None:
        """Run its program once."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.seconds.append(self.read())


def single(algorithm: str, gradients: Gradients) -> tuple[Any, Any]:
    """The agent as populations train it, and its backend."""
    make, backend = registry.load(algorithm, BACKEND, gradients)
    config = CONFIGS[algorithm]
    return make(config, envs.make(ENV, config.num_envs, "jax")), backend


def ours(algorithm: str, size: int, group: int, iterations: int, gradients: Gradients, vectors: int) -> Side:
    """`size` members in groups, a chunk of iterations as one program."""
    agent, backend = single(algorithm, gradients)
    many = execute(agent, backend, "none", "chunk", iterations, size=size, group=min(group, size))
    assert many.iterate is not None
    return compiled(many.iterate, start(many, 0), vectors)


def theirs(algorithm: str, size: int, iterations: int, vectors: int) -> Side:
    """`size` seeds under one vmap."""
    sys.path.insert(0, str(PROGRAMS))
    import purejax_dqn
    import purejax_style  # pyright: ignore[reportMissingImports]

    config = CONFIGS[algorithm]
    told = {"env": WORK.env, "total_steps": config.num_iterations * config.batch_size}
    program = {"ppo": purejax_style, "dqn": purejax_dqn}[algorithm]
    begin, update = program.make_parts(SimpleNamespace(**asdict(config) | told | {"hidden_sizes": config.hidden}))
    runner = jax.jit(lambda keys: jax.lax.map(begin, keys))(jax.random.split(jax.random.PRNGKey(0), size))
    return compiled(jax.vmap(lambda one: jax.lax.scan(update, one, None, iterations)), runner, vectors)


def named(name: str, vectors: int) -> str:
    """The name of a side, with its vectors where they are not XLA's choice."""
    return name if vectors == XLA_VECTORS else f"{name}, vectors of {vectors} bits"


def table(flags: argparse.Namespace, size: int) -> None:
    """Print the rows of one population size."""
    batch_size = CONFIGS[flags.algorithm].batch_size
    iterations = max(2, flags.steps // (size * batch_size))
    sides: dict[str, Side | Rejax] = {}
    reference: dict[str, str] = {}
    for vectors in flags.vectors:
        sides[named(REFERENCE, vectors)] = theirs(flags.algorithm, size, iterations, vectors)
        for group, gradients in product(sorted({min(group, size) for group in flags.groups}), get_args(Gradients)):
            name = named(f"ours, groups of {group}, {gradients}", vectors)
            sides[name] = ours(flags.algorithm, size, group, iterations, gradients, vectors)
            reference[name] = named(REFERENCE, vectors)
    if REJAX.exists():
        sides["rejax, vmap"] = Rejax(flags.algorithm, size, iterations)
    order = random.Random(size)
    for _ in range(flags.rounds):
        for name in order.sample(list(sides), len(sides)):
            sides[name].call()
    steps = size * iterations * batch_size
    for name, side in sides.items():
        beside = sides[reference.get(name, named(REFERENCE, flags.vectors[0]))]
        ratios = [a / b for a, b in zip(beside.seconds, side.seconds, strict=True)]
        print(
            f"| {size} | {name} | {steps / statistics.median(side.seconds) / 1e3:.0f} k | "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | "
            f"{side.bytes / size / 1e3:.0f} kB | {side.compile_s:.1f} s |",
            flush=True,
        )
    for side in sides.values():
        if isinstance(side, Rejax):
            side.process.kill()
            side.process.wait()


def main() -> None:
    """Time, then print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=[*CONFIGS], default="ppo")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 32, 256, 1024])
    parser.add_argument("--groups", type=int, nargs="+", default=[8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=CALL_STEPS)
    parser.add_argument("--vectors", type=int, nargs="+", default=[XLA_VECTORS])
    flags = parser.parse_args()
    print("| agents | program | agent steps/s | ratio (rounds) | memory per agent | compile |")
    print("|---:|---|---:|---|---:|---:|")
    for size in flags.members:
        table(flags, size)


if __name__ == "__main__":
    main()
