"""Pure functions on arrays. `math.jax` and `math.torch` have the same names, arguments, shapes and numbers.

Both implement `Math` (see `protocol.py`). An algorithm that takes one of them as an argument (see
`algorithms/ppo/loss.py`) is written once for all backends. This package imports neither framework.
"""
