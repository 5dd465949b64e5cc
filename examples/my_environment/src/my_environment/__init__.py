"""Two environments: `light_seeker` in JAX, `thermostat` in gymnasium, which is registered on import."""

import gymnasium


def register() -> None:
    """Register Thermostat-v0; in the namespace that is current, as an entry point of `gymnasium.envs` needs it."""
    gymnasium.register("Thermostat-v0", "my_environment.thermostat:Thermostat", max_episode_steps=100)


register()
