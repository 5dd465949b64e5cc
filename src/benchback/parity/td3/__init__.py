"""Parity of TD3 with a float64 oracle: test cases, the oracle, and the five levels."""
