"""Vanilla policy gradient, discrete and real-valued actions."""
