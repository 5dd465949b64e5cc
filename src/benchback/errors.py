"""The exception for invalid input, and what its messages share: names that are near, and packages that are missing."""

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any


class InputError(Exception):
    """Invalid input; the message is one line and names the value and the remedy.

    Not a ValueError: those are bugs of this package and keep their traceback.
    """


NEAR = 0.7
"""Share of equal characters from which on a name is taken for a misspelling of another."""
LONGEST_SHOWN = 100
MOST_LISTED = 12
"""Most known names that are listed beside a suggestion."""

SPELLINGS = {
    "learning_rate actor_learning_rate": "lr alpha step_size",
    "actor_learning_rate": "actor_lr pi_lr policy_lr",
    "critic_learning_rate": "critic_lr vf_lr value_lr q_lr",
    "num_envs": "n_envs num_env n_env envs nenvs num_environments num_workers n_workers",
    "num_steps": "n_steps nsteps rollout_length rollout_steps horizon unroll_length train_freq train_frequency",
    "num_iterations steps": "total_timesteps timesteps total_steps num_timesteps n_timesteps total_env_steps "
    "n_iterations iterations num_iters n_iters max_iterations",
    "num_epochs": "n_epochs epochs update_epochs ppo_epochs noptepochs num_sgd_iter",
    "num_minibatches": "n_minibatches nminibatches minibatches num_batches n_batches",
    "minibatch_size num_minibatches": "batch_size batchsize mini_batch_size sgd_minibatch_size",
    "num_updates": "gradient_steps updates n_updates updates_per_step",
    "num_value_steps": "train_v_iters value_steps",
    "gae_lambda": "lam lambda lmbda gae_lam lambda_gae td_lambda",
    "gamma": "discount discount_factor discounting",
    "clip": "clip_range clip_coef clip_eps clip_ratio clip_epsilon clip_param cliprange epsilon_clip eps_clip",
    "clip_value": "clip_vloss clip_value_loss clip_vf clip_range_vf",
    "entropy_coefficient": "ent_coef entropy_coef entropy_coeff ent_coeff entropy_cost entropy entropy_weight",
    "value_coefficient": "vf_coef value_coef value_coeff vf_coeff vf_loss_coeff value_loss_coef value_loss_weight",
    "max_grad_norm": "grad_clip clip_grad gradient_clip gradient_clipping grad_norm grad_norm_clip max_gradient_norm",
    "anneal": "anneal_lr lr_decay lr_schedule learning_rate_schedule",
    "hidden_sizes hidden": "hidden net_arch layers hidden_layers hidden_size hidden_dim hidden_dims arch mlp width",
    "replay_capacity": "buffer_size buffer replay_size replay_buffer_size memory_size capacity",
    "learning_starts update_after": "warmup_steps train_start start_learning learning_start learning_starts",
    "start_steps": "random_steps start_timesteps exploration_steps",
    "target_every": "target_network_frequency target_update_interval target_update_freq target_update_period",
    "tau polyak": "soft_update target_tau tau polyak",
    "first_epsilon": "exploration_initial_eps start_e eps_start epsilon_start initial_epsilon epsilon",
    "last_epsilon": "exploration_final_eps end_e eps_end epsilon_end final_epsilon min_epsilon",
    "adam_epsilon": "adam_eps eps",
    "adam_beta1": "beta1 b1",
    "adam_beta2": "beta2 b2",
    "policy_delay": "policy_frequency policy_freq actor_delay",
    "exploration_noise": "action_noise act_noise expl_noise",
    "target_noise": "policy_noise target_policy_noise",
    "target_noise_clip": "noise_clip",
    "initial_log_std": "log_std_init log_std init_log_std",
    "normalise_obs": "norm_obs normalize_obs normalize_observations normalise_observations obs_norm",
    "normalise_reward": "norm_reward normalize_reward normalize_rewards reward_norm",
    "env": "env_id env_name environment task game",
    "backend": "framework library lib impl implementation",
    "mode": "compile jit compile_mode",
    "algorithm": "algo alg agent",
    "dtype": "precision float_type",
    "seed": "random_state rng random_seed",
    "seeds": "n_seeds num_seeds",
    "out store": "output output_dir outdir save save_path logdir log_dir folder directory dir path file",
    "threads": "num_threads n_threads cores cpus num_cpus workers jobs",
    "episodes": "n_episodes num_episodes n_eval_episodes eval_episodes",
    "points": "n_trials trials samples num_samples",
    "config": "cfg config_file yaml",
    "blocks": "repetitions runs n_runs",
    "axes": "axis",
    "products": "product",
    "train": "learn fit",
    "eval": "evaluate test enjoy",
    "play": "video render watch record",
    "tune": "sweep search optimize optimise hpo",
    "run": "bench benchmark measure",
    "list": "ls",
    "list-runs": "runs attempts",
    "studies": "study",
    "verify": "check fsck",
    "compare": "diff",
    "advise": "recommend which",
    "envs": "environments",
}
"""Our names -> what other libraries and people call the same; of several of ours, the first that is known is meant."""
ALIASES = {word: ours.split() for ours, words in SPELLINGS.items() for word in words.split()}


def near(name: Any, known: Iterable[str], aliases: Mapping[str, str] | None = None) -> str | None:
    """The known name that `name` most likely means; None where nothing is near."""
    given, ours = plain(name), {plain(x): x for x in reversed([*known])}
    if given in ours:
        return ours[given]
    meant = [*ALIASES.get(given, ()), *([aliases[given]] if aliases and given in aliases else [])]
    if found := next((ours[plain(x)] for x in meant if plain(x) in ours), None):
        return found
    likeness = {x: SequenceMatcher(None, given, x).ratio() for x in reversed(ours)}
    best = max(likeness, key=lambda x: likeness[x], default="")
    if likeness.get(best, 0.0) >= NEAR:
        return ours[best]
    # A word of a longer name, if only one has it: `minibatches` of num_minibatches.
    parts = [x for x in ours if len(given) > 2 and (x.startswith(given) or given in x.replace("/", "_").split("_"))]
    return ours[parts[0]] if len(parts) == 1 else None


def plain(name: Any) -> str:
    """The name without what is often mistaken: case, dashes for underscores, leading dashes."""
    return str(name)[:LONGEST_SHOWN].lstrip("-").lower().replace("-", "_").replace(" ", "_")


def hint(name: Any, known: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """`did you mean X?` where a known name is near, with all of them if they are few; else the known ones."""
    known = list(known)
    found = near(name, known, aliases)
    listed = f"known: {', '.join(map(str, known))}"
    if found is None:
        return listed
    return f"did you mean {found}?" + (f" {listed.capitalize()}" if 1 < len(known) <= MOST_LISTED else "")


def choose(kind: str, name: Any, known: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """`name` if it is known; otherwise an InputError names the one that is meant, or all."""
    known = list(known)
    if name in known:
        return name
    shown = str(name)[:LONGEST_SHOWN]
    raise InputError(f"{kind}={shown} is unknown; {hint(name, known, aliases)}")


def install(extra: str) -> str:
    """How to install an extra of this package."""
    return f"pip install '.[{extra}]' in a clone of benchback (it is on no package index)"
