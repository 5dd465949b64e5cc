"""Where the seconds of a cold start go: imports, programs, runs of the C++ compiler.

    python benchmarks/starts.py [--backend pytorch] [--algorithm ppo] [--env torch/CartPole-v1] [--tree OTHER/src]

One fresh process with empty compile caches and one thread, as in a campaign. Seconds are processor time, of the process
and of the compilers that it starts, so that a busy machine matters less; those of single programs are elapsed time.
`--tree` measures the sources of another checkout, e.g. of an earlier commit.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from importlib import import_module
from typing import Any

CALLS = 3


def processor_s() -> tuple[float, float]:
    """Processor time so far: of this process, and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, children = (x.ru_utime + x.ru_stime for x in used)
    return own, children


class Marks:
    """Processor seconds by part, in order."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[float, float]] = {}
        self.last = (0.0, 0.0)  # from the start of the process

    def end(self, part: str) -> None:
        """The time since the last mark belongs to `part`."""
        now = processor_s()
        self.parts[part] = now[0] - self.last[0], now[1] - self.last[1]
        self.last = now


def start(fields: dict[str, Any]) -> dict[str, Any]:
    """Start a training in this process and call it; what each part took."""
    marks = Marks()
    from benchback import registry
    from benchback.agent import start
    from benchback.measure.worker import learning
    from benchback.training import advance
    from benchback.training.run import Run, environment

    run = Run.from_dict(fields)
    make, backend = registry.load(run.algorithm, run.backend, run.gradients)
    marks.end("import framework")
    env = environment(run, run.config.num_envs)
    marks.end("environment")
    programs, compiler = watch(run.framework, run.compile_mode)
    marks.end("import compiler")
    agent = registry.execute(make(run.config, env), backend, run.compile_mode, run.unit, run.length)
    state = start(agent, run.seed)
    marks.end("initial state")
    for call in range(CALLS):
        state, metrics = advance(agent, state)
        backend.block(metrics)
        marks.end(f"iteration {call}")
    work = learning(agent.export(state), run, env.observation_shape)
    return {
        "parts": marks.parts,
        "programs": programs() if callable(programs) else programs,
        "compiler": compiler,
        "mflop": (work["forward_flops"] + work["gradient_flops"]) / 1e6,
    }


def watch(framework: str, mode: str) -> tuple[Any, list[float]]:
    """Seconds of each program, and of each run of the C++ compiler, as they will be once programs are compiled."""
    if framework == "jax":
        from jax import monitoring

        programs: dict[str, float] = defaultdict(float)

        def note(event: str, duration_secs: float, **about: Any) -> None:
            if event.startswith("/jax/core/compile/"):
                programs[about.get("fun_name", "?").removeprefix("jit(").removesuffix(")")] += duration_secs

        monitoring.register_event_duration_secs_listener(note)
        return programs, []
    if mode != "compile":
        return {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("torch._inductor.compile_fx")
    from torch._dynamo.utils import get_compilation_metrics
    from torch._inductor import cpp_builder

    runs: list[float] = []
    run_compiler = cpp_builder.run_compile_cmd

    def timed(*arguments: Any, **options: Any) -> None:
        before = processor_s()[1]
        run_compiler(*arguments, **options)
        runs.append(processor_s()[1] - before)

    cpp_builder.run_compile_cmd = timed
    return lambda: {x.co_name: x.entire_frame_compile_time_s for x in get_compilation_metrics()}, runs


def child(fields: dict[str, Any], tree: str) -> dict[str, Any]:
    """What `start` found in a fresh process with empty caches."""
    from benchback.measure.machine import variables

    with tempfile.TemporaryDirectory() as caches:
        environment = variables(1, caches) | ({"PYTHONPATH": tree} if tree else {})
        command = [sys.executable, __file__, "--child", json.dumps(fields)]
        began = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        elapsed_s = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1]) | {"elapsed_s": elapsed_s}


def show(found: dict[str, Any]) -> None:
    """Print a start by its parts."""
    parts, compiler = found["parts"], found["compiler"]
    print(f"{'part':<20}{'process s':>12}{'compilers s':>14}")
    for name, (own, children) in parts.items():
        print(f"{name:<20}{own:>12.2f}{children:>14.2f}")
    later = [f"iteration {call}" for call in range(1, CALLS)]
    first = [sum(both) for name, both in parts.items() if name not in later]
    print(f"\nto the end of the first iteration: {sum(first):.1f} processor seconds")
    if compiler:
        print(f"C++ compiler: {len(compiler)} runs, {sum(compiler):.1f} s, the longest {max(compiler):.1f} s")
    programs = sorted(found["programs"].items(), key=lambda each: -each[1])
    print(f"{len(programs)} programs (elapsed s): " + ", ".join(f"{name} {s:.2f}" for name, s in programs[:8]))
    compile_s = sum(s for _, s in programs)
    print(
        f"{1e3 * compile_s / found['mflop']:.1f} ms of compiling per MFLOP of an iteration ({found['mflop']:.0f} MFLOP)"
    )


def main() -> None:
    """Parse, start, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="ppo")
    parser.add_argument("--backend", default="pytorch")
    parser.add_argument("--mode", default="best")
    parser.add_argument("--env", default="torch/CartPole-v1")
    parser.add_argument("--config", type=json.loads, default={}, help="further fields of the run, as JSON")
    parser.add_argument("--tree", default="", help="folder with another version's package benchback")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(start(given.child)), flush=True)
        os._exit(0)
    names = ("algorithm", "backend", "mode", "env")
    show(
        child({name: getattr(given, name) for name in names} | given.config, given.tree and os.path.abspath(given.tree))
    )


if __name__ == "__main__":
    main()
