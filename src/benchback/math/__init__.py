"""Arrays in, arrays out. `math.jax` and `math.torch` are twins: same names, arguments, shapes and numbers.

Both are a `Math` (see `protocol.py`). An algorithm that takes one of them as an argument (see
`algorithms/ppo/loss.py`) is written once for all backends. This package imports neither framework.
"""
