"""Keras 3 on JAX as a backend of benchback: `backend.py` has the networks, `ppo.py` the algorithm.

This module is imported to list the backend, so it imports no framework.
"""

from benchback.registry import JIT, Spec

SPEC = Spec(
    title="Keras 3",
    family="jax",
    modes=JIT,
    best="jit",
    module="keras",
    package="keras",
    colour="#8a6fbf",
    gradients=("framework",),
)
