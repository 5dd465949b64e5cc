"""One file per framework: its MLP, its compile modes, how to wait for it, where its weights lie.

`xla.py` holds what the five JAX frameworks have in common.
"""
