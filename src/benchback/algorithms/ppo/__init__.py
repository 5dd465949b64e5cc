"""Proximal policy optimisation, discrete actions."""
