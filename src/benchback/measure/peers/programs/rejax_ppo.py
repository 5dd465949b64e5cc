"""rejax's PPO as one compiled program; its evaluations during training are switched off."""

from functools import partial
from types import SimpleNamespace
from typing import Any

from measuring import main, time_twice  # pyright: ignore[reportMissingImports]

EVALUATION_EPISODES = 32


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train twice, then evaluate the last policy with sampled actions; the evaluation is not timed.

    Several agents are trained and evaluated under vmap.
    """
    import jax
    from rejax import PPO  # pyright: ignore[reportMissingImports]

    agents = getattr(work, "agents", 1)
    ppo = PPO.create(**arguments(work), **made_env(work.env)).replace(eval_callback=lambda ppo, state, key: 0.0)
    program = jax.jit(many(lambda key: ppo.train(key)[0], agents))

    def train(seed: int) -> Any:
        return jax.block_until_ready(program(keys(seed, agents)))

    times, state = time_twice(train, work)
    returns = jax.jit(many(partial(returns_of, ppo), agents))(state, keys(work.seed, agents))
    found = {"episode_return": float(returns.mean()), "config": canonical(ppo, work)}
    return times | found | {"env_alone": lambda: alone_s(ppo, agents * work.num_envs)}


def many(function: Any, agents: int) -> Any:
    """The function of one agent, or of all under vmap."""
    import jax

    return function if agents == 1 else jax.vmap(function)


def keys(seed: int, agents: int) -> Any:
    """A key, or one for each member."""
    import jax

    key = jax.random.PRNGKey(seed)
    return key if agents == 1 else jax.random.split(key, agents)


def returns_of(learner: Any, state: Any, key: Any) -> Any:
    """Returns of the policy's episodes."""
    from rejax.evaluate import evaluate  # pyright: ignore[reportMissingImports]

    max_steps = learner.env_params.max_steps_in_episode
    return evaluate(learner.make_act(state), key, learner.env, learner.env_params, EVALUATION_EPISODES, max_steps)[1]


def alone_s(learner: Any, num_envs: int) -> float:
    """Seconds of a step of all environments by themselves."""
    import jax
    from limits import jax_env_step_s  # pyright: ignore[reportMissingImports]

    env, params = learner.env, learner.env_params

    def reset(key: Any) -> Any:
        return jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, num_envs), params)[1]

    def step(state: Any, action: Any, key: Any) -> tuple[Any, Any]:
        keys = jax.random.split(key, num_envs)
        obs, state, reward, done, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(keys, state, action, params)
        return state, (obs, reward, done)

    return jax_env_step_s(
        reset, step, lambda key: jax.vmap(env.action_space(params).sample)(jax.random.split(key, num_envs))
    )


def made_env(name: str) -> dict[str, Any]:
    """The environment as arguments; a task of brax on its cheapest pipeline."""
    if name != name.lower():
        return {"env": name}
    from rejax.compat import create  # pyright: ignore[reportMissingImports]

    env, params = create(f"brax/{name}", backend="spring")
    return {"env": env, "env_params": params}


def arguments(work: SimpleNamespace) -> dict[str, Any]:
    """The work as rejax's arguments."""
    total = work.num_iterations * work.num_envs * work.num_steps
    return {
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
    # What has no meaning for discrete actions or one agent is not asked for.
    asked = {"initial_log_std": 0.0, "agents": getattr(work, "agents", 1)}
    return asked | {
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
