"""One file per framework: networks, compile modes, synchronisation, weight layout.

`xla.py` is shared by the five JAX frameworks.
"""
