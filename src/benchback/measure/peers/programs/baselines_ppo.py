"""PPO of stable-baselines3, of sbx, its JAX twin with the same interface, or of sb3-contrib, which has a memory."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from limits import ENV_STEPS, env_step_s  # pyright: ignore[reportMissingImports]
from measuring import main, time_after_warm_up  # pyright: ignore[reportMissingImports]

RECURRENT = "sb3_contrib"


def measure(work: SimpleNamespace, options: dict[str, str]) -> dict[str, Any]:
    """Train the PPO of `options["module"]` with every hyper-parameter of the work."""
    from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]

    module = options["module"]
    name, policy = ("RecurrentPPO", "MlpLstmPolicy") if module == RECURRENT else ("PPO", "MlpPolicy")
    environments = make_vec_env(work.env, n_envs=work.num_envs, seed=work.seed)
    ppo = getattr(import_module(module), name)(policy, environments, **arguments(work, module))

    def advance(iterations: int) -> None:
        steps = iterations * work.num_envs * work.num_steps
        ppo.learn(steps, reset_num_timesteps=False)

    times = time_after_warm_up(advance, work)
    returns = [episode["r"] for episode in ppo.ep_info_buffer]
    mean = sum(returns) / len(returns) if returns else float("nan")
    found = {"episode_return": float(mean), "config": canonical(ppo, work, module)}
    return times | found | {"env_alone": lambda: alone_s(environments)}


def alone_s(environments: Any) -> float:
    """Seconds of a step of all environments by themselves, with random actions."""
    space, actions = environments.action_space, []
    environments.reset()

    def play() -> None:
        for action in actions:
            environments.step(action)

    for _ in range(ENV_STEPS):
        actions.append([space.sample() for _ in range(environments.num_envs)])
    return env_step_s(play)


def arguments(work: SimpleNamespace, module: str) -> dict[str, Any]:
    """The work as stable-baselines3's arguments."""
    common = {
        "n_steps": work.num_steps,
        "batch_size": work.num_envs * work.num_steps // work.num_minibatches,
        "n_epochs": work.num_epochs,
        "learning_rate": work.learning_rate,
        "gamma": work.gamma,
        "gae_lambda": work.gae_lambda,
        "clip_range": work.clip,
        "ent_coef": work.entropy_coefficient,
        # Their value loss is the squared error, ours half of it.
        "vf_coef": work.value_coefficient / 2,
        "max_grad_norm": work.max_grad_norm,
        "seed": work.seed,
        "device": "cpu",
    }
    towers = {"pi": list(work.hidden_sizes), "vf": list(work.hidden_sizes)}
    common |= {"policy_kwargs": {"net_arch": towers} | (memory(work) if module == RECURRENT else {})}
    # sbx takes clip_range_vf and does nothing with it.
    return common if module == "sbx" else common | {"clip_range_vf": work.clip}


def memory(work: SimpleNamespace) -> dict[str, Any]:
    """One LSTM for policy and value, and relu after it; it has no layer before it."""
    from torch import nn  # pyright: ignore[reportMissingImports]

    one = {"lstm_hidden_size": work.hidden_sizes[0], "shared_lstm": True, "enable_critic_lstm": False}
    return one | {"activation_fn": nn.ReLU}


def canonical(ppo: Any, work: SimpleNamespace, module: str) -> dict[str, Any]:
    """The configuration it really uses, read back from it, as benchback's fields."""
    batch_size = ppo.n_envs * ppo.n_steps
    cell = getattr(ppo.policy, "lstm_actor", None)
    return {
        "network": "mlp" if cell is None else type(cell).__name__.lower(),
        # Without a meaning for discrete actions, and then not asked for.
        "initial_log_std": getattr(ppo.policy, "log_std_init", 0.0),
        "env": work.env,
        "num_envs": ppo.n_envs,
        "num_steps": ppo.n_steps,
        "num_iterations": ppo.num_timesteps // batch_size,
        "num_epochs": ppo.n_epochs,
        "num_minibatches": batch_size // ppo.batch_size,
        "hidden_sizes": hidden_sizes(ppo.policy),
        "learning_rate": ppo.learning_rate,
        "anneal": False,
        # Both libraries' policies set it.
        "adam_epsilon": ppo.policy.optimizer_kwargs["eps"],
        "max_grad_norm": ppo.max_grad_norm,
        "gamma": ppo.gamma,
        "gae_lambda": ppo.gae_lambda,
        "clip": float(ppo.clip_range if module == "sbx" else ppo.clip_range(1)),
        "clip_value": getattr(ppo, "clip_range_vf", None) is not None,
        "entropy_coefficient": ppo.ent_coef,
        "value_coefficient": ppo.vf_coef * 2,
        "truncation": "bootstrap",
        "dtype": "float32",
    }


def hidden_sizes(policy: Any) -> list[int]:
    """Widths of both towers, which must be equal."""
    if hasattr(policy, "net_arch_pi"):
        actor, critic = policy.net_arch_pi, policy.net_arch_vf
    else:
        actor, critic = policy.net_arch["pi"], policy.net_arch["vf"]
    if actor != critic:
        raise ValueError(f"the towers differ: {actor} and {critic}")
    return list(actor)


if __name__ == "__main__":
    main(measure)
