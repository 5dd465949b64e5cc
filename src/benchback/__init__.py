"""benchback: which neural-network backend should I build my reinforcement-learning project on?

Importing this package imports neither jax nor torch.
"""

__version__ = "0.1.0"
