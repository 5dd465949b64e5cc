"""Parity of DQN with a float64 oracle: test cases, the oracle, and the five levels."""
