"""How a peer learns: run by the Python of its own virtual environment, for `learning_curves.py`.

Reads {"work", "options", "seeds", "points", "episodes"} as JSON from standard input and prints a line for each seed:
the greedy returns along its training, at evenly spaced moments. The arguments are those that `benchback peers` gives
the same libraries; nothing else of benchback is imported. Episodes of evaluation are the first of each of `episodes`
fresh environments.
"""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Curve = list[tuple[int, float]]
"""Environment steps -> mean greedy return."""


def main() -> None:
    """A line for each seed, as soon as it is done."""
    job = json.load(sys.stdin)
    sys.path.insert(0, job["programs"])
    learn = of_rejax if job["options"]["module"] == "rejax" else of_baselines
    for seed, curve in learn(job):
        print(json.dumps({"seed": seed, "curve": curve}), flush=True)


def of_rejax(job: dict[str, Any]) -> Iterator[tuple[int, Curve]]:
    """One seed after another in one program, with the likeliest action where its own evaluation would sample one."""
    import jax
    import numpy as np
    from rejax.evaluate import evaluate  # pyright: ignore[reportMissingImports]

    work = SimpleNamespace(**job["work"])
    apart = total_steps(work) // job["points"]

    def returns(learner: Any, state: Any, key: Any) -> Any:
        limit = learner.env_params.max_steps_in_episode
        act = greedy_policy(learner, state, work.algorithm)
        return evaluate(act, key, learner.env, learner.env_params, job["episodes"], limit)[1].mean()

    learner = rejax_learner(work).replace(eval_freq=apart, eval_callback=returns)
    train = jax.jit(lambda key: learner.train(key)[1])
    for seed in job["seeds"]:
        found = np.asarray(train(jax.random.PRNGKey(seed)))
        yield seed, [(apart * i, float(x)) for i, x in enumerate(found, 1)]


def rejax_learner(work: SimpleNamespace) -> Any:
    """rejax's algorithm with every hyper-parameter of the work."""
    if work.algorithm == "ppo":
        import rejax_ppo  # pyright: ignore[reportMissingImports]
        from rejax import PPO  # pyright: ignore[reportMissingImports]

        return PPO.create(**rejax_ppo.arguments(work), **rejax_ppo.made_env(work.env))
    from rejax_off_policy import made  # pyright: ignore[reportMissingImports]

    return made(work)


def greedy_policy(learner: Any, state: Any, algorithm: str) -> Any:
    """Observation, key -> the most likely action, or that of the highest value."""
    import jax.numpy as jnp

    if algorithm == "td3":
        return learner.make_act(state)

    def act(obs: Any, key: Any) -> Any:
        if algorithm == "dqn":
            return learner.agent.apply(state.q_ts.params, obs[None])[0].argmax(-1)
        found = learner.actor.apply(state.actor_ts.params, obs[None], method="_action_dist")
        return jnp.squeeze(found.mode())

    return act


def of_baselines(job: dict[str, Any]) -> Iterator[tuple[int, Curve]]:
    """One seed after another; the training stops for an evaluation after an iteration."""
    from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.evaluation import evaluate_policy  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.vec_env import VecNormalize  # pyright: ignore[reportMissingImports]

    class Evaluations(BaseCallback):
        """Greedy returns at evenly spaced moments."""

        def __init__(self, environments: Any, apart: int) -> None:
            super().__init__()
            self.environments, self.apart, self.curve = environments, apart, []

        def _on_step(self) -> bool:
            if self.num_timesteps >= self.apart * (1 + len(self.curve)):
                # Every environment has one episode, in the same starting states each time.
                self.environments.seed(1000)
                if getattr(self.training_env, "obs_rms", None):
                    self.environments.obs_rms = self.training_env.obs_rms
                returns, _ = evaluate_policy(
                    self.model, self.environments, self.environments.num_envs, deterministic=True, warn=False
                )
                self.curve.append((self.num_timesteps, float(returns)))
            return True

    module = job["options"]["module"]
    for seed in job["seeds"]:
        work = SimpleNamespace(**job["work"] | {"seed": seed})
        environments = make_vec_env(work.env, n_envs=work.num_envs, seed=seed)
        evaluation = make_vec_env(work.env, n_envs=job["episodes"], seed=1000)
        if work.normalise_obs:
            environments = VecNormalize(environments, norm_reward=work.normalise_reward, gamma=work.gamma)
            evaluation = VecNormalize(evaluation, training=False, norm_reward=False)
        callback = Evaluations(evaluation, total_steps(work) // job["points"])
        baseline(work, module, environments).learn(total_steps(work), callback=callback)
        yield seed, callback.curve


def baseline(work: SimpleNamespace, module: str, environments: Any) -> Any:
    """The library's algorithm with every hyper-parameter of the work."""
    import baselines_off_policy as off_policy  # pyright: ignore[reportMissingImports]
    import baselines_ppo as on_policy  # pyright: ignore[reportMissingImports]

    algorithm = getattr(import_module(module), work.algorithm.upper())
    if work.algorithm == "ppo":
        return algorithm("MlpPolicy", environments, **on_policy.arguments(work, module))
    if work.algorithm == "dqn":
        off_policy.use_squared_error(module)
    noise = off_policy.noise(work)
    if noise:
        noise["action_noise"] = per_component(work.exploration_noise, environments.action_space.shape)
    return algorithm("MlpPolicy", environments, **off_policy.arguments(work, module), **noise)


def per_component(scale: float, shape: tuple[int, ...]) -> Any:
    """Independent normal noise for every component of an action, in units of half its range."""
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise  # pyright: ignore[reportMissingImports]

    return NormalActionNoise(np.zeros(shape), np.full(shape, scale))


def total_steps(work: SimpleNamespace) -> int:
    """Environment steps of the training."""
    return work.num_iterations * work.num_envs * work.num_steps


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
