"""Deep Q-learning (DQN), discrete actions."""
