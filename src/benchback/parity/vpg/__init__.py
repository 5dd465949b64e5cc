"""Parity of VPG with a float64 oracle: test cases, the oracle, and the five levels."""
