"""Proximal policy optimisation (PPO), discrete and continuous actions."""
