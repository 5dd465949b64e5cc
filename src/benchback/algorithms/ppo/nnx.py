"""PPO in Flax NNX: the state is one object, mutated in place."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Key, Shaped

from benchback.agent import Agent, Counter, Data, Environment, HyperParameters, Metrics, Network, Optimiser, Randomness
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import init_normaliser, normalise_batch, normalise_obs, update_normaliser
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap, to_transitions
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import Minibatch, make_training_batch, ppo_loss
from benchback.backends import xla
from benchback.backends.kernel_gradients import Gradients
from benchback.backends.nnx import NETWORKS, ActorCritic, agent
from benchback.envs.any_member import any_member
from benchback.envs.interface import Env, Step
from benchback.math import jax as math


@nnx.dataclass(eq=False)
class State(nnx.Pytree):
    """Training state; every field is a module, an optimiser or a variable."""

    model: Network[ActorCritic]
    adam: Optimiser[nnx.Optimizer]
    adam_count: Counter[nnx.Variable]
    normaliser: Data[nnx.Variable]
    env: Environment[nnx.Variable]
    key: Randomness[nnx.Variable]
    hyper: HyperParameters[nnx.Variable]


def make(config: Config, env: Env, gradients: Gradients = "framework") -> Agent:
    dtype = xla.dtype(config.dtype)
    distribution = action_distribution(math, env.actions)
    optimiser = math.adam(
        anneal=config.anneal, steps_per_iteration=config.updates_per_iteration, num_iterations=config.num_iterations
    )

    def init(key: Key[Array, ""], hyper: Hyper) -> State:
        hyper = xla.as_data(hyper, dtype)
        key, model_key, env_key = jax.random.split(key, 3)
        log_std = None if env.actions.kind == "discrete" else hyper.initial_log_std
        sizes = env.observation_shape, config.hidden, env.actions.size
        model = NETWORKS[config.network](*sizes, dtype, log_std, gradients, rngs=nnx.Rngs(params=model_key))
        adam, count = nnx.Optimizer(model, optimiser, wrt=nnx.Param), jnp.zeros((), jnp.int32)
        normaliser = init_normaliser(math, config, env.observation_shape, dtype)
        env_state = env.reset(env_key)
        return State(model, adam, *(nnx.Variable(x) for x in (count, normaliser, env_state, key, hyper)))

    def rollout(state: State) -> tuple[State, Transition]:
        key, env_key, action_key = jax.random.split(state.key.get_value(), 3)
        state.key.set_value(key)
        env_noise = env.draw(env_key, config.num_steps)
        action_noise = distribution.noise(action_key, (config.num_steps, config.num_envs, env.actions.size), dtype)
        state, seen = rollout_steps(state, (env_noise, action_noise))
        return state, finish_rollout(state, *seen)

    # Tree mode (graph=False) suffices without shared references, and costs half when not compiled.
    @nnx.scan(graph=False, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    def rollout_steps(state: State, noise: tuple[Any, Float[Array, "E A"]]) -> tuple[State, tuple[Any, ...]]:
        env_noise, action_noise = noise
        env_state = state.env.get_value()
        obs = env_state.obs
        policy_params = state.model.policy(normalise_obs(math, state.normaliser.get_value(), obs))
        action = distribution.sample(policy_params, action_noise)
        env_state, step = env.step(env_state, action, env_noise)
        state.env.set_value(env_state)
        return state, (obs, action, policy_params, step._replace(obs=None))

    # Values are not needed to act: computing them for all steps at once, outside the loop, is faster.
    def finish_rollout(state: State, obs: Any, action: Any, policy_params: Any, step: Step) -> Transition:
        log_prob = distribution.log_prob(policy_params, action)
        networks = state.model, state.normaliser.get_value()
        final_value = jax.lax.cond(any_member(step.truncated.any()), values, no_values, *networks, step.final_obs)
        return to_transitions(obs, action, log_prob, values(*networks, obs), final_value, step)

    def values(model: ActorCritic, normaliser: Any, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        rows = normalise_obs(math, normaliser, obs).reshape(-1, *env.observation_shape)
        return model.value(rows).reshape(obs.shape[:2])

    def no_values(model: ActorCritic, normaliser: Any, obs: Shaped[Array, "T E *O"]) -> Float[Array, "T E"]:
        return jnp.zeros(obs.shape[:2], dtype)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        hyper = state.hyper.get_value()

        def objective(model: ActorCritic) -> tuple[Float[Array, ""], Metrics]:
            policy_params, value = model(minibatch.obs)
            return ppo_loss(math, distribution, policy_params, value, minibatch, hyper, config)

        gradient, metrics = nnx.grad(objective, has_aux=True)(state.model)
        count = state.adam_count.get_value()
        state.adam.update(state.model, gradient, count=count, hyper=hyper)
        state.adam_count.set_value(count + 1)
        return state, metrics | {"grad_norm": optax.tree.norm(gradient)}

    @nnx.scan(graph=False, in_axes=(nnx.Carry, None, 0), out_axes=(nnx.Carry, 0))
    def minibatch_steps(state: State, data: Minibatch, index: Int[Array, "B"]) -> tuple[State, Metrics]:
        return learn(state, math.take(data, index))

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser.get_value(), state.hyper.get_value()
        last_value = state.model.value(normalise_obs(math, normaliser, state.env.get_value().obs))
        seen = normalise_batch(math, normaliser, batch)
        next_value, terminated = bootstrap(math, seen, last_value, config.truncation)
        advantage = math.gae(
            seen.reward, seen.value, next_value, terminated, seen.done, gamma=hyper.gamma, lam=hyper.gae_lambda
        )
        key, shuffle_key = jax.random.split(state.key.get_value())
        state.key.set_value(key)
        index = math.minibatch_indices(
            shuffle_key,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        state, losses = minibatch_steps(state, make_training_batch(seen, advantage), index)
        state.normaliser.set_value(update_normaliser(math, normaliser, batch, hyper.gamma))
        return state, jax.tree.map(jnp.mean, losses) | episode_metrics(math, batch)

    def act(state: State, memory: tuple[()], obs: Shaped[Array, "B *O"]) -> tuple[tuple[()], Shaped[Array, "B *A"]]:
        return memory, distribution.greedy(state.model.policy(normalise_obs(math, state.normaliser.get_value(), obs)))

    return agent(State, config, env, init=init, rollout=rollout, update=update, learn=learn, act=act)
