"""VPG held against a float64 oracle: test cases, the oracle, and the five levels that compare."""
