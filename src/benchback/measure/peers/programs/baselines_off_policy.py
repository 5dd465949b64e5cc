"""DQN or TD3 of stable-baselines3, or of sbx, its JAX twin with the same interface.

Both libraries' DQN minimises Huber's loss, with which values diverge on this work (to 500,000 where 100 is the
largest possible) and the policy ends with the worst return. Here they minimise the squared error, as the others do.
"""

import math
import time
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from baselines_ppo import alone_s  # pyright: ignore[reportMissingImports]
from measuring import check_gradient_steps, main, time_between  # pyright: ignore[reportMissingImports]


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train the algorithm of `options["module"]` with every hyper-parameter of the work, in one call."""
    from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]

    module = options["module"]
    if work.algorithm == "dqn":
        use_squared_error(module)
    environments = make_vec_env(work.env, n_envs=work.num_envs, seed=work.seed)
    algorithm = getattr(import_module(module), work.algorithm.upper())
    learner = algorithm("MlpPolicy", environments, **arguments(work, module), **noise(work))
    moments: list[float] = []

    def mark(*_: Any) -> bool:
        """Called after every step of all environments, before the gradient step; True to go on."""
        moments.append(time.perf_counter())
        return True

    started = time.perf_counter()
    learner.learn(work.num_iterations * work.num_envs * work.num_steps, callback=mark)
    check(learner, work)
    returns = [episode["r"] for episode in learner.ep_info_buffer]
    mean = sum(returns) / len(returns) if returns else float("nan")
    times = time_between(started, moments, work)
    found = {"episode_return": float(mean), "config": canonical(learner, work, module)}
    return times | found | {"env_alone": lambda: alone_s(environments)}


def arguments(work: SimpleNamespace, module: str) -> dict[str, Any]:
    """The work as stable-baselines3's arguments."""
    common = {
        "buffer_size": work.replay_capacity,
        "batch_size": work.minibatch_size,
        "train_freq": work.num_steps,
        "gradient_steps": work.num_updates,
        "gamma": work.gamma,
        "policy_kwargs": {"net_arch": list(work.hidden_sizes)},
        "seed": work.seed,
        "device": "cpu",
    }
    if work.algorithm == "dqn":
        # stable-baselines3 clips gradients unless told otherwise; sbx never does.
        unclipped = {} if module == "sbx" else {"max_grad_norm": float("inf")}
        return (
            common
            | unclipped
            | {
                "learning_rate": work.learning_rate,
                "learning_starts": work.learning_starts,
                "target_update_interval": work.target_every,
                "tau": work.tau,
                "exploration_initial_eps": work.first_epsilon,
                "exploration_final_eps": work.last_epsilon,
                "exploration_fraction": work.exploration_fraction,
            }
        )
    return common | {
        "learning_rate": work.critic_learning_rate,
        "learning_starts": work.update_after,
        "tau": 1 - work.polyak,
        "policy_delay": work.policy_delay,
        "target_policy_noise": work.target_noise,
        "target_noise_clip": work.target_noise_clip,
    }


def use_squared_error(module: str) -> None:
    """Put the squared error in the place of Huber's loss, for this process; neither library has an option for it."""
    if module == "sbx":
        import optax

        setattr(optax, "huber_loss", optax.squared_error)  # noqa: B010
    else:
        from torch.nn import functional  # pyright: ignore[reportMissingImports]

        setattr(functional, "smooth_l1_loss", functional.mse_loss)  # noqa: B010


def check(learner: Any, work: SimpleNamespace) -> None:
    """Refuse a training that was not the one asked for, by its own counts, its replay and its exploration."""
    check_gradient_steps(learner._n_updates, work)
    rows = learner.replay_buffer.buffer_size * learner.n_envs
    if rows != work.replay_capacity:
        raise ValueError(f"a replay of {rows} transitions instead of {work.replay_capacity}")
    if work.algorithm != "dqn":
        return
    middle = learner.exploration_schedule(1 - work.exploration_fraction / 2)
    halfway = (work.first_epsilon + work.last_epsilon) / 2
    for found, asked in ((middle, halfway), (learner.exploration_rate, work.last_epsilon)):
        if not math.isclose(found, asked, rel_tol=1e-6):
            raise ValueError(f"epsilon {found} instead of {asked}")


def noise(work: SimpleNamespace) -> dict[str, Any]:
    """TD3's exploration."""
    if work.algorithm == "dqn":
        return {}
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise  # pyright: ignore[reportMissingImports]

    return {"action_noise": NormalActionNoise(np.zeros(1), work.exploration_noise * np.ones(1))}


def canonical(learner: Any, work: SimpleNamespace, module: str) -> dict[str, Any]:
    """The configuration it really uses, read back from it, as benchback's fields."""
    common = {
        "env": work.env,
        "num_envs": learner.n_envs,
        "num_steps": learner.train_freq.frequency,
        "num_iterations": learner.num_timesteps // (learner.n_envs * learner.train_freq.frequency),
        "num_updates": learner.gradient_steps,
        "minibatch_size": learner.batch_size,
        "replay_capacity": learner.buffer_size,
        "hidden_sizes": hidden_sizes(learner.policy),
        # The default of torch's Adam and of optax's.
        "adam_epsilon": learner.policy.optimizer_kwargs.get("eps", 1e-8),
        "gamma": learner.gamma,
        "truncation": "bootstrap",
        "dtype": "float32",
    }
    if work.algorithm == "dqn":
        # sbx divides the interval by the number of environments once, stable-baselines3 whenever it is used.
        every = learner.target_update_interval * (learner.n_envs if module == "sbx" else 1)
        return common | {
            "learning_starts": learner.learning_starts,
            "learning_rate": learner.learning_rate,
            "anneal": False,
            "target_every": every,
            "tau": learner.tau,
            "double": False,
            "first_epsilon": learner.exploration_initial_eps,
            "last_epsilon": learner.exploration_final_eps,
            "exploration_fraction": learner.exploration_fraction,
        }
    return common | {
        "start_steps": learner.learning_starts,
        "update_after": learner.learning_starts,
        "policy_delay": learner.policy_delay,
        "actor_learning_rate": learner.learning_rate,
        "critic_learning_rate": getattr(learner, "qf_learning_rate", learner.learning_rate),
        "polyak": 1 - learner.tau,
        "exploration_noise": float(learner.action_noise._sigma[0]),
        "target_noise": learner.target_policy_noise,
        "target_noise_clip": learner.target_noise_clip,
    }


def hidden_sizes(policy: Any) -> list[int]:
    """Widths of the hidden layers, which actor and critics must have in common."""
    if hasattr(policy, "n_units"):  # sbx's DQN
        return [policy.n_units, policy.n_units]
    if not hasattr(policy, "net_arch_pi"):
        return list(policy.net_arch)
    if policy.net_arch_pi != policy.net_arch_qf:
        raise ValueError(f"actor and critics differ: {policy.net_arch_pi} and {policy.net_arch_qf}")
    return list(policy.net_arch_pi)


if __name__ == "__main__":
    main(measure)
