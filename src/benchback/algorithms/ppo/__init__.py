"""Proximal policy optimisation, discrete and real-valued actions."""
