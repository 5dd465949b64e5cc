"""rejax under vmap, as `population.py` measures it: run by the Python of rejax's own virtual environment.

It needs an older gymnax than ours, so it cannot be in one process with the others: it answers each line of its input
with the processor seconds of one program call. Its first argument is the work, as JSON. Nothing of benchback is
imported but the programs of `benchback peers`, which say what rejax calls the fields of the work.
"""

import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import jax


def learner(work: SimpleNamespace) -> Any:
    """rejax's algorithm with the sizes of the work."""
    if work.algorithm == "ppo":
        import rejax  # pyright: ignore[reportMissingImports]
        from rejax_ppo import arguments, made_env  # pyright: ignore[reportMissingImports]

        return rejax.PPO.create(**arguments(work), **made_env(work.env))
    from rejax_off_policy import made  # pyright: ignore[reportMissingImports]

    return made(work)


def main() -> None:
    """Compile, say so, and then answer."""
    given = json.loads(sys.argv[1])
    sys.path.insert(0, given["programs"])
    trained, size = learner(SimpleNamespace(**given["work"])), given["size"]

    def one_call(state: Any) -> Any:
        return jax.lax.scan(lambda s, _: (trained.train_iteration(s), None), state, None, given["iterations"])[0]

    state = jax.jit(lambda keys: jax.lax.map(trained.init_state, keys))(jax.random.split(jax.random.PRNGKey(0), size))
    started = time.perf_counter()
    program = jax.jit(jax.vmap(one_call), donate_argnums=0).lower(state).compile()
    compile_s = time.perf_counter() - started
    memory: Any = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    for _ in range(given["warm"]):
        state = jax.block_until_ready(program(state))
    print(json.dumps({"compile_s": compile_s, "bytes": held - memory.alias_size_in_bytes}), flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        state = jax.block_until_ready(program(state))
        print(json.dumps(time.process_time() - started), flush=True)


if __name__ == "__main__":
    main()
