"""The five levels for TD3."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchback.agent import Weights, start
from benchback.algorithms.offpolicy import Transition
from benchback.algorithms.td3.config import Config
from benchback.algorithms.td3.loss import METRICS
from benchback.parity import deviation, environment
from benchback.parity.deviation import Deviation, worst
from benchback.parity.environment import ACTION_SIZE, BOX
from benchback.parity.execution import executions
from benchback.parity.gradient_steps import gradient_steps
from benchback.parity.oracle import parameters
from benchback.parity.subject import Subject
from benchback.parity.td3 import cases, oracle
from benchback.parity.td3.oracle import Memory

SEED = 7
NUM_ITERATIONS = 4


def forward(subject: Subject) -> Iterator[Deviation]:
    """L0: greedy actions, then the initial weights."""
    random = np.random.default_rng(2)
    weights, obs = cases.networks(random), cases.minibatch(random).obs
    agent = subject.agent(cases.BASE, "box")
    action = subject.greedy(agent, start(agent, SEED, weights), obs)
    yield "real_action/greedy", deviation.relative(action, oracle.policy(weights, obs, BOX), floor=1.0)
    yield from initial_weights(agent.export(start(agent, SEED)))


def initial_weights(weights: Weights) -> Iterator[Deviation]:
    """Kernels are orthogonal with scale sqrt 2, 0.01 and 1 for the output layers; biases are zero; targets equal."""
    depth = len(cases.BASE.hidden)
    scale = {f"actor/{depth}/kernel": 0.01} | {f"{tower}/{depth}/kernel": 1.0 for tower in oracle.CRITICS}
    online = parameters(weights)
    yield from worst(
        ("initial_bias", deviation.absolute(x, np.zeros_like(x)))
        if name.endswith("bias")
        else ("initial_kernel", deviation.absolute(_gram(x / scale.get(name, 2**0.5)), np.eye(min(x.shape))))
        for name, x in online.items()
    )
    slow = deviation.section(weights, "target/")
    yield from worst(("names/target", deviation.mismatch(slow.get(name, np.nan), x)) for name, x in online.items())
    twins = deviation.absolute(online["critic1/0/kernel"], online["critic2/0/kernel"])
    yield "names/twins", float(twins < 0.1)


def _gram(kernel: np.ndarray) -> np.ndarray:
    """Gram matrix of the kernel's shorter side: the identity if it is orthogonal."""
    return kernel @ kernel.T if kernel.shape[0] < kernel.shape[1] else kernel.T @ kernel


def one_step(subject: Subject) -> Iterator[Deviation]:
    """L1: one gradient step on each case."""
    return worst(d for case in cases.single_steps() for d in _one_step(subject, case))


def _one_step(subject: Subject, case: cases.Case) -> Iterator[Deviation]:
    agent = subject.agent(case.config, "box")
    state, metrics = agent.learn(start(agent, SEED, case.weights), subject.place_all(case.minibatch))
    found, found_metrics = agent.export(state), subject.fetch(metrics)
    expected, expected_metrics = oracle.learn(case.weights, case.minibatch, BOX, case.config)
    yield from deviation.of_metrics(found_metrics, expected_metrics)
    yield "names/delayed", _known_but(found_metrics, expected_metrics)
    yield from deviation.of_weights(found, expected)
    if case.weights["critic_adam/count"] == 0:
        # Adam's first moment is the gradient times 1 - beta1.
        for prefix in ("actor_adam/mean/", "critic_adam/mean/"):
            gradients = (
                {name: x / (1 - case.config.adam_beta1) for name, x in deviation.section(w, prefix).items()}
                for w in (found, expected)
            )
            yield from deviation.of_towers("gradient", *gradients)
    trained = [x for name, x in found.items() if name in expected and not name.endswith("count")]
    yield "dtype", float(np.mean([x.dtype != subject.dtype for x in trained]))


def _known_but(found: dict[str, Any], expected: dict[str, float]) -> float:
    """Fraction of the metrics that are not NaN although they should be; infinite if one is missing."""
    others = [name for name in METRICS if name not in expected]
    if not found.keys() >= set(METRICS):
        return np.inf
    return float(np.mean([not np.isnan(found[name]) for name in others])) if others else 0.0


def twenty_steps(subject: Subject) -> Iterator[Deviation]:
    """L2: twenty gradient steps, seven of them with policy and target updates, where small differences accumulate."""
    weights, minibatches = cases.twenty_steps()
    agent = subject.agent(cases.BASE, "box")
    learn = partial(oracle.learn, bounds=BOX, config=cases.BASE)
    return worst(gradient_steps(subject, agent, SEED, weights, minibatches, learn))


def update(subject: Subject) -> Iterator[Deviation]:
    """L3: whole updates on given rollouts, then whole iterations; random numbers as the README says."""
    # The option is in shared code: it is tested where that needs no compilation.
    configs = (cases.BASE,) if subject.spec.family == "jax" else (cases.BASE, cases.PLAIN)
    yield from worst(d for config in configs for d in _given_rollouts(subject, config))
    yield from worst((f"{quantity}/iteration", off) for quantity, off in _iterations(subject))


def _given_rollouts(subject: Subject, config: Config) -> Iterator[Deviation]:
    """Updates on rollouts with every kind of episode end; at first too few rows to learn, later beyond capacity."""
    random = np.random.default_rng(3)
    agent = subject.agent(config, "box")
    state = start(agent, SEED, cases.midway(cases.networks(random), random, count=5))
    memory = Memory({}, 0)
    for _ in range(NUM_ITERATIONS):
        batch, before = cases.transitions(random, config), agent.export(state)
        state, metrics = agent.update(state, subject.place_all(batch))
        memory = oracle.remember(memory, batch, config)
        yield from _updated(subject, config, memory, before, subject.fetch(metrics), agent.export(state))
        yield from deviation.of_metrics(subject.fetch(metrics), oracle.episodes(batch))


def _updated(
    subject: Subject, config: Config, memory: Memory, before: Weights, metrics: dict[str, Any], after: Weights
) -> Iterator[Deviation]:
    """One update compared with the oracle's, from the backend's state."""
    places, noise = _learning_randomness(subject, before["rng"], memory.inserted, config)
    known = {name: np.asarray(x, float) if x.ndim else x for name, x in deviation.trained(before).items()}
    expected, expected_metrics = oracle.update(known, memory, places, noise, BOX, config)
    yield from deviation.of_metrics(metrics, expected_metrics)
    yield "names/unlearnt", _known_but(metrics, expected_metrics)
    yield from deviation.of_weights(after, expected)
    yield "count/inserted", deviation.mismatch(after["replay/inserted"], memory.inserted)


def _iterations(subject: Subject) -> Iterator[Deviation]:
    """Iterations: actions and transitions, then updates, compared with the oracle."""
    config = cases.BASE
    agent = subject.agent(config, "box")
    random = np.random.default_rng(5)
    state = start(agent, SEED, cases.midway(cases.networks(random), random, count=4))
    memory = Memory({}, 0)
    for _ in range(NUM_ITERATIONS):
        first = agent.export(state)
        state, batch = agent.rollout(state)
        # Copied before the update may donate it.
        fetched, before = subject.fetch(batch), agent.export(state)
        yield from _acted(subject, config, memory.inserted, first, fetched)
        memory = oracle.remember(memory, fetched, config)
        state, metrics = agent.update(state, batch)
        yield from _updated(subject, config, memory, before, subject.fetch(metrics), agent.export(state))


def _acted(subject: Subject, config: Config, inserted: int, first: Weights, batch: Transition) -> Iterator[Deviation]:
    """Deviation of a rollout: actions (uniform at first, then the policy's with noise) and transitions."""
    normal, uniform = _acting_randomness(subject, first["rng"], config)
    action = oracle.explored(parameters(first), batch.obs, normal, BOX, config)
    at_random = max(0, config.start_steps - inserted) // config.num_envs
    action[:at_random] = (np.array(BOX.low) + 2 * oracle.half_range(BOX) * uniform)[:at_random]
    yield "real_action", deviation.relative(batch.action, action, floor=1.0)
    final_obs = environment.successor(np, batch.obs.astype(float), batch.action.astype(float))
    yield "real_action/final_obs", deviation.relative(batch.final_obs, final_obs, floor=1.0)


def _acting_randomness(subject: Subject, rng: np.ndarray, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Normal and uniform noise of the rollout that starts with this random state."""
    shape = config.num_steps, config.num_envs, ACTION_SIZE
    if subject.spec.family == "jax":
        import jax

        _, _, action_key = jax.random.split(jax.random.wrap_key_data(jax.numpy.asarray(rng)), 3)
        keys = jax.random.split(action_key)
        drawn = jax.random.normal(keys[0], shape, subject.dtype), jax.random.uniform(keys[1], shape, subject.dtype)
    else:
        import torch

        generator, dtype = _generator(rng), getattr(torch, subject.dtype)
        torch.randint(2**31, (2,), generator=generator)  # the environment's
        drawn = [draw(shape, dtype=dtype, generator=generator) for draw in (torch.randn, torch.rand)]
    return np.asarray(drawn[0], float), np.asarray(drawn[1], float)


def _learning_randomness(
    subject: Subject, rng: np.ndarray, inserted: int, config: Config
) -> tuple[np.ndarray, np.ndarray]:
    """Replay indices `[U, B]` and noise `[U, B, A]` of the update that starts with this random state."""
    shape = config.num_updates, config.minibatch_size
    if subject.spec.family == "jax":
        import jax

        from benchback.math.jax import Replay, sample_indices

        _, row_key, noise_key = jax.random.split(jax.random.wrap_key_data(jax.numpy.asarray(rng)), 3)
        replay = Replay((jax.numpy.zeros(config.replay_capacity),))
        places = sample_indices(row_key, replay, jax.numpy.asarray(inserted), (config.gradient_rows,))
        noise = jax.random.normal(noise_key, (*shape, ACTION_SIZE), subject.dtype)
    else:
        import torch

        from benchback.math.torch import Replay, sample_indices

        generator = _generator(rng)
        replay = Replay((torch.zeros(config.replay_capacity),))
        places = sample_indices(generator, replay, inserted, (config.gradient_rows,))
        noise = torch.randn((*shape, ACTION_SIZE), dtype=getattr(torch, subject.dtype), generator=generator)
    return np.asarray(places).reshape(shape), np.asarray(noise, float)


def _generator(rng: np.ndarray) -> Any:
    import torch

    return torch.Generator().set_state(torch.tensor(rng))


def execution(subject: Subject) -> Iterator[Deviation]:
    """L4: every mode and unit."""
    return executions(subject, cases.TINY, "box")


LEVELS = {"L0": forward, "L1": one_step, "L2": twenty_steps, "L3": update, "L4": execution}
