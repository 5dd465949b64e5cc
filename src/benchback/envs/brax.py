"""brax environments as vectorised device environments, on the pipeline `spring`, the cheapest to run and to compile.

They only terminate, e.g. when the hopper falls; the time limit of 1000 steps is that of `brax.envs.create`, whose
wrappers reset to one cached first state and drop the last observation. Ours do neither: see `physics`. Actions are in
[-1, 1] and scaled to the actuators by the environment. brax's `fast`, a dummy for its own tests, is left out, and so is
`swimmer`, which calls a function that JAX has removed; brax's environments are no longer developed.
"""

from warnings import catch_warnings

from benchback.envs.interface import Box, Env
from benchback.envs.physics import Simulation, without_warnings
from benchback.envs.vectorise import vectorise

with catch_warnings(action="ignore"):  # brax loads an unmaintained solver, which warns
    from brax import envs

LIMIT = 1000


def make(name: str, num_envs: int) -> Env:
    """The brax environment `name`, `num_envs` times."""
    with without_warnings():
        environment = envs.get_environment(name, backend="spring")
    size = environment.action_size
    return vectorise(Simulation(environment, LIMIT), None, f"brax/{name}", num_envs, Box((-1.0,) * size, (1.0,) * size))
