"""rejax's PPO as one compiled program; its evaluations during training are switched off."""

from types import SimpleNamespace
from typing import Any

from measuring import main, time_twice  # pyright: ignore[reportMissingImports]

EVALUATION_EPISODES = 32


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train twice, then evaluate the last policy with sampled actions; the evaluation is not timed."""
    import jax
    from rejax import PPO  # pyright: ignore[reportMissingImports]
    from rejax.evaluate import evaluate  # pyright: ignore[reportMissingImports]

    ppo = PPO.create(**arguments(work)).replace(eval_callback=lambda ppo, state, key: 0.0)
    program = jax.jit(lambda key: ppo.train(key)[0])

    def train(seed: int) -> Any:
        return jax.block_until_ready(program(jax.random.PRNGKey(seed)))

    times, state = time_twice(train, work)
    max_steps = ppo.env_params.max_steps_in_episode
    key = jax.random.PRNGKey(work.seed)
    _, returns = evaluate(ppo.make_act(state), key, ppo.env, ppo.env_params, EVALUATION_EPISODES, max_steps)
    return times | {"episode_return": float(returns.mean()), "config": canonical(ppo, work)}


def arguments(work: SimpleNamespace) -> dict[str, Any]:
    """The work as rejax's arguments."""
    total = work.num_iterations * work.num_envs * work.num_steps
    return {
        "env": work.env,
        "num_envs": work.num_envs,
        "num_steps": work.num_steps,
        "num_epochs": work.num_epochs,
        "num_minibatches": work.num_minibatches,
        "total_timesteps": total,
        "eval_freq": total,
        "skip_initial_evaluation": True,
        "learning_rate": work.learning_rate,
        "gamma": work.gamma,
        "gae_lambda": work.gae_lambda,
        "clip_eps": work.clip,
        "ent_coef": work.entropy_coefficient,
        "vf_coef": work.value_coefficient,
        "max_grad_norm": work.max_grad_norm,
        "agent_kwargs": {"activation": "tanh", "hidden_layer_sizes": tuple(work.hidden_sizes)},
    }


def canonical(ppo: Any, work: SimpleNamespace) -> dict[str, Any]:
    """The configuration rejax really uses, read back from it, as benchback's fields."""
    return {
        "env": work.env,
        "num_envs": ppo.num_envs,
        "num_steps": ppo.num_steps,
        "num_iterations": ppo.total_timesteps // (ppo.num_envs * ppo.num_steps),
        "num_epochs": ppo.num_epochs,
        "num_minibatches": ppo.num_minibatches,
        "hidden_sizes": list(ppo.actor.hidden_layer_sizes),
        "learning_rate": ppo.learning_rate,
        "anneal": False,
        "adam_epsilon": 1e-8,
        "max_grad_norm": ppo.max_grad_norm,
        "gamma": ppo.gamma,
        "gae_lambda": ppo.gae_lambda,
        "clip": ppo.clip_eps,
        "clip_value": True,
        "entropy_coefficient": ppo.ent_coef,
        "value_coefficient": ppo.vf_coef,
        "truncation": "terminal",
        "dtype": "float32",
    }


if __name__ == "__main__":
    main(measure)
