"""Deep Q-learning in every backend."""
