"""The published schedule of benchback-rl, exact: 231 configurations in its order, under its labels.

11 of the 231 repeat another: the warm-up is measured again in the first experiment, and Acrobot with the small model
belongs to the second and the third. In the protocol's order a repeated cell is measured once per block and serves
all its entries; the original order runs every entry, as published. Published runs took their seed from the clock.
"""

from typing import Any

from benchback.measure.study import Product, Study

ENVS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "DiscountingChain-bsuite",
    "MemoryChain-bsuite",
    "UmbrellaChain-bsuite",
    "BernoulliBandit-misc",
    "GaussianBandit-misc",
    "Asterix-MinAtar",
    "Breakout-MinAtar",
    "Freeway-MinAtar",
    "SpaceInvaders-MinAtar",
)
MODELS = ("small", "medium", "large")


def _variant(framework: str, compile: str, backend: str, mode: str) -> dict[str, Any]:
    return {"backend": backend, "mode": mode, "published": {"framework": framework, "compile": compile}}


COMPILED = (
    _variant("torch", "torch.compile", "pytorch", "compile"),
    _variant("linen", "jax.jit", "linen", "jit"),
    _variant("nnx", "nnx.cached_partial", "nnx", "cached_partial"),
)
ALL_MODES = (
    *COMPILED,
    _variant("torch", "none", "pytorch", "none"),
    _variant("linen", "none", "linen", "none"),
    _variant("nnx", "none", "nnx", "none"),
    _variant("nnx", "nnx.jit", "nnx", "jit"),
    _variant("torch", "torch.nocompile/env.jit", "pytorch", "env_jit"),
)

# Every hyper-parameter of the published runs, also where it is the default: defaults may change, these may not.
PUBLISHED = {
    "algorithm": "ppo",
    "unit": "phase",
    "num_envs": 32,
    "num_steps": 256,
    "num_iterations": 100,
    "num_epochs": 10,
    "num_minibatches": 8,
    "learning_rate": 2.5e-4,
    "anneal": True,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-5,
    "max_grad_norm": 0.5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "clip_value": True,
    "entropy_coefficient": 0.01,
    "value_coefficient": 0.5,
    "truncation": "terminal",
}


def _part(label: str, timing: str, envs: tuple[str, ...], variants: tuple, models: tuple[str, ...]) -> Product:
    axes = {"env": tuple(f"gymnax/{env}" for env in envs), "variant": variants, "model": models}
    return Product(label=label, axes=axes, fixed=PUBLISHED | {"timing": timing})


STUDY = Study(
    name="benchback_rl",
    description="The 231 configurations of benchback-rl: PyTorch, Linen and NNX over environments, sizes and modes.",
    products=(
        _part("warmup", "async", ("Acrobot-v1",), COMPILED, ("small",)),
        _part("V2 Exp1: async", "async", ENVS, COMPILED, MODELS),
        _part("V2 Exp2: sync, envs", "sync", ENVS, ALL_MODES, ("small",)),
        _part("V2 Exp3: sync, models", "sync", ("Acrobot-v1",), ALL_MODES, MODELS),
    ),
    protocol="runs",
    # A large model without a GPU takes hours.
    timeout_s=8 * 3600.0,
)
