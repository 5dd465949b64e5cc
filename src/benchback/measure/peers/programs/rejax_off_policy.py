"""rejax's DQN or TD3 as one compiled program; its evaluations during training are switched off."""

from types import SimpleNamespace
from typing import Any

from measuring import check_gradient_steps, main, time_twice  # pyright: ignore[reportMissingImports]
from rejax_ppo import alone_s, returns_of  # pyright: ignore[reportMissingImports]

CRITIC = {"dqn": "q_ts", "td3": "critic_ts"}
"""Where the state of training keeps its critics."""


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train twice, then evaluate the last policy; the evaluation is not timed."""
    import jax

    learner = made(work)
    program = jax.jit(lambda key: learner.train(key)[0])

    def train(seed: int) -> Any:
        return jax.block_until_ready(program(jax.random.PRNGKey(seed)))

    times, state = time_twice(train, work)
    check_gradient_steps(int(getattr(state, CRITIC[work.algorithm]).step), work)
    returns = returns_of(learner, state, jax.random.PRNGKey(work.seed))
    found = {"episode_return": float(returns.mean()), "config": canonical(learner, work)}
    return times | found | {"env_alone": lambda: alone_s(learner, work.num_envs)}


def made(work: SimpleNamespace) -> Any:
    """The algorithm with networks of the work's widths, which its own arguments do not change."""
    import rejax  # pyright: ignore[reportMissingImports]

    learner = getattr(rejax, work.algorithm.upper()).create(**arguments(work))
    learner = learner.replace(eval_callback=lambda learner, state, key: 0.0)
    networks = ("agent",) if work.algorithm == "dqn" else ("actor", "critic")
    sizes = tuple(work.hidden_sizes)
    return learner.replace(**{name: getattr(learner, name).clone(hidden_layer_sizes=sizes) for name in networks})


def arguments(work: SimpleNamespace) -> dict[str, Any]:
    """The work as rejax's arguments."""
    total = work.num_iterations * work.num_envs * work.num_steps
    common = {
        "env": work.env,
        "num_envs": work.num_envs,
        "num_epochs": work.num_updates,
        "batch_size": work.minibatch_size,
        "buffer_size": work.replay_capacity,
        "total_timesteps": total,
        "eval_freq": total,
        "skip_initial_evaluation": True,
        "gamma": work.gamma,
    }
    if work.algorithm == "dqn":
        return common | {
            "fill_buffer": work.learning_starts,
            "learning_rate": work.learning_rate,
            "target_update_freq": work.target_every,
            "polyak": 1 - work.tau,
            "ddqn": work.double,
            "eps_start": work.first_epsilon,
            "eps_end": work.last_epsilon,
            "exploration_fraction": work.exploration_fraction,
            "agent_kwargs": {"activation": "relu"},
        }
    return common | {
        "fill_buffer": work.update_after,
        "learning_rate": work.critic_learning_rate,
        "polyak": work.polyak,
        "policy_delay": work.policy_delay,
        # Noise is in the units of actions there, and a share of half their range here.
        "exploration_noise": work.exploration_noise * TORQUE,
        "target_noise": work.target_noise * TORQUE,
        "target_noise_clip": work.target_noise_clip * TORQUE,
        "actor_kwargs": {"activation": "relu"},
        "critic_kwargs": {"activation": "relu"},
    }


TORQUE = 2.0
"""Half the range of Pendulum's actions."""


def canonical(learner: Any, work: SimpleNamespace) -> dict[str, Any]:
    """The configuration rejax really uses, read back from it, as benchback's fields."""
    common = {
        "env": work.env,
        "num_envs": learner.num_envs,
        "num_steps": 1,
        "num_iterations": learner.total_timesteps // learner.num_envs,
        "num_updates": learner.num_epochs,
        "minibatch_size": learner.batch_size,
        "replay_capacity": learner.buffer_size,
        "adam_epsilon": 1e-8,
        "gamma": learner.gamma,
        "truncation": "terminal",
        "dtype": "float32",
    }
    if work.algorithm == "dqn":
        return common | {
            "learning_starts": learner.fill_buffer,
            "hidden_sizes": list(learner.agent.hidden_layer_sizes),
            "learning_rate": learner.learning_rate,
            "anneal": False,
            "target_every": learner.target_update_freq,
            "tau": 1 - learner.polyak,
            "double": learner.ddqn,
            "first_epsilon": learner.eps_start,
            "last_epsilon": learner.eps_end,
            "exploration_fraction": learner.exploration_fraction,
        }
    if learner.actor.hidden_layer_sizes != learner.critic.hidden_layer_sizes or learner.num_critics != 2:
        raise ValueError("actor and both critics must have the same layers")
    return common | {
        "start_steps": learner.fill_buffer,
        "update_after": learner.fill_buffer,
        "policy_delay": learner.policy_delay,
        "hidden_sizes": list(learner.actor.hidden_layer_sizes),
        "actor_learning_rate": learner.learning_rate,
        "critic_learning_rate": learner.learning_rate,
        "polyak": learner.polyak,
        "exploration_noise": learner.exploration_noise / TORQUE,
        "target_noise": learner.target_noise / TORQUE,
        "target_noise_clip": learner.target_noise_clip / TORQUE,
    }


if __name__ == "__main__":
    main(measure)
