"""Parity of PPO with a float64 oracle: test cases, the oracle, and the five levels."""
