"""Brax's own PPO: its training loop as it is, a program for each of two equal parts of which the second is timed.

Its evaluations are switched off. Actions are Gaussian with a learnt standard deviation and values clipped, as here;
advantages are computed anew in every gradient step, minibatches are whole unrolls.
"""

import time
from functools import partial
from types import SimpleNamespace
from typing import Any

from measuring import main  # pyright: ignore[reportMissingImports]

EPISODE_LENGTH = 1000
PARTS = 2


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train twice the iterations in two calls of one program; the return is not known, as nothing evaluates it."""
    import jax
    from brax import envs
    from brax.training.agents.ppo import train

    # It calls this once before training; JAX has removed it.
    setattr(jax, "device_put_replicated", replicated)  # noqa: B010
    environment = envs.get_environment(work.env, backend="spring")
    seen: list[tuple[int, float]] = []
    started = time.perf_counter()

    def mark(step: int, metrics: Any) -> None:
        jax.block_until_ready(metrics)
        seen.append((step, time.perf_counter()))

    asked = arguments(work)
    _, params, _ = train.train(environment, progress_fn=mark, **asked)
    (half, first), (all_steps, second) = seen
    steady_s = second - first
    times = {"env_steps": all_steps - half, "steady_s": steady_s, "compile_s": max(0.0, first - started - steady_s)}
    config = canonical(asked, jax.device_get(params), half, work)
    found = {"episode_return": float("nan"), "config": config}
    return times | found | {"env_alone": lambda: alone_s(environment, work.num_envs)}


def replicated(tree: Any, devices: Any) -> Any:
    """The arrays once for each device, along a new first axis."""
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)


def arguments(work: SimpleNamespace) -> dict[str, Any]:
    """The work as Brax's arguments."""
    import jax.numpy as jnp
    from brax.training.agents.ppo.networks import make_ppo_networks

    sizes = tuple(work.hidden_sizes)
    network = partial(
        make_ppo_networks,
        policy_hidden_layer_sizes=sizes,
        value_hidden_layer_sizes=sizes,
        activation=jnp.tanh,
        distribution_type="normal",
        noise_std_type="log",
    )
    return {
        "num_timesteps": PARTS * work.num_iterations * work.num_envs * work.num_steps,
        "num_evals": PARTS + 1,
        "run_evals": False,
        "episode_length": EPISODE_LENGTH,
        "num_envs": work.num_envs,
        "unroll_length": work.num_steps,
        "batch_size": work.num_envs // work.num_minibatches,
        "num_minibatches": work.num_minibatches,
        "num_updates_per_batch": work.num_epochs,
        "learning_rate": work.learning_rate,
        "discounting": work.gamma,
        "gae_lambda": work.gae_lambda,
        "clipping_epsilon": work.clip,
        "clipping_epsilon_value": work.clip if work.clip_value else None,
        "entropy_cost": work.entropy_coefficient,
        "vf_loss_coefficient": work.value_coefficient,
        "max_grad_norm": work.max_grad_norm,
        "network_factory": network,
        "seed": work.seed,
    }


def canonical(asked: dict[str, Any], params: Any, steps: int, work: SimpleNamespace) -> dict[str, Any]:
    """Its arguments as benchback's fields; layers and steps as they were, read from its weights and its count."""
    batch_size = asked["batch_size"] * asked["num_minibatches"] * asked["unroll_length"]
    return {
        "env": work.env,
        "num_envs": asked["num_envs"],
        "num_steps": asked["unroll_length"],
        "num_iterations": steps // batch_size,
        "num_epochs": asked["num_updates_per_batch"],
        "num_minibatches": asked["num_minibatches"],
        "hidden_sizes": hidden_sizes(params),
        "learning_rate": asked["learning_rate"],
        "anneal": False,
        "adam_epsilon": 1e-8,
        "max_grad_norm": asked["max_grad_norm"],
        "gamma": asked["discounting"],
        "gae_lambda": asked["gae_lambda"],
        "clip": asked["clipping_epsilon"],
        "clip_value": asked["clipping_epsilon_value"] == asked["clipping_epsilon"],
        "entropy_coefficient": asked["entropy_cost"],
        "value_coefficient": asked["vf_loss_coefficient"],
        "initial_log_std": 0.0,
        "truncation": "masked",
        "dtype": "float32",
    }


def hidden_sizes(params: Any) -> list[int]:
    """Widths of the hidden layers of both networks, which must be equal."""
    import jax

    _, policy, value = params

    def widths(tree: Any) -> list[int]:
        leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
        found = [x.shape[1] for path, x in leaves if getattr(path[-1], "key", "") == "kernel"]
        # The output layer, narrower than all others; of the policy it comes first by its name.
        found.remove(min(found))
        return found

    if widths(policy) != widths(value):
        raise ValueError(f"the networks differ: {widths(policy)} and {widths(value)}")
    return widths(policy)


def alone_s(environment: Any, num_envs: int) -> float:
    """Seconds of a step of all environments by themselves, as its training wraps them."""
    import jax
    from brax.envs import training
    from limits import jax_env_step_s  # pyright: ignore[reportMissingImports]

    wrapped = training.wrap(environment, episode_length=EPISODE_LENGTH)

    def step(state: Any, action: Any, key: Any) -> tuple[Any, Any]:
        state = wrapped.step(state, action)
        return state, (state.obs, state.reward, state.done)

    return jax_env_step_s(
        lambda key: wrapped.reset(jax.random.split(key, num_envs)),
        step,
        lambda key: jax.random.uniform(key, (num_envs, environment.action_size), minval=-1, maxval=1),
    )


if __name__ == "__main__":
    main(measure)
