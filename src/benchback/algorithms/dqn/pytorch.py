"""DQN in PyTorch: module, optimiser, replay and generator are updated in place."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from benchback.agent import (
    Agent,
    Counter,
    Data,
    Environment,
    HyperParameters,
    Metrics,
    Network,
    Optimiser,
    Randomness,
    Target,
)
from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.dqn.loss import (
    LOSS_METRICS,
    Minibatch,
    dqn_loss,
    epsilon_at,
    learns,
    td_target,
    updates_target,
)
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Transition, nan_metrics, to_experience
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import CNN, NatureCNN, Wrap
from benchback.backends.torch_layers import LecunMLP
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math
from benchback.plugins import Networks


class QNetwork(nn.Module):
    """Q-network: the value of each action."""

    tower: ClassVar[Any] = LecunMLP

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: torch.dtype,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.critic = self.tower(observation_shape, hidden, num_actions, 1.0, dtype, generator, "relu")

    def forward(self, obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B A"]:
        return self.critic(obs)


class ConvolutionalQNetwork(QNetwork):
    """Q-network for images of MinAtar."""

    tower = CNN


class NatureQNetwork(QNetwork):
    """Q-network for images of Atari."""

    tower = NatureCNN


NETWORKS = Networks("pytorch", "QNetwork", mlp=QNetwork, cnn=ConvolutionalQNetwork, nature_cnn=NatureQNetwork)


@dataclass
class State:
    model: Network[QNetwork]
    target: Target[QNetwork]
    adam: Optimiser[math.AdamState]
    replay: Data[math.Replay]
    replay_inserted: Counter[int]
    env: Environment[EnvState]
    generator: Randomness[torch.Generator]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, wrap: Wrap = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.learning_iterations,
        clip=False,
    )

    def init(generator: torch.Generator, hyper: Hyper) -> State:
        hyper = pytorch.as_data(hyper, dtype)
        sizes = env.observation_shape, config.hidden, env.actions.size
        model = NETWORKS[config.network](*sizes, dtype, generator)
        target = deepcopy(model).requires_grad_(False)
        adam = optimiser.init(list(model.parameters()))
        env_state = env.reset(generator)
        obs, zero = env_state.obs[0], torch.zeros((), dtype=dtype, device=generator.device)
        row = Minibatch(obs, zero.to(torch.int32), zero, obs, zero.to(torch.bool))
        replay = math.empty_replay(row, config.replay_capacity)
        return State(model, target, adam, replay, 0, env_state, generator, hyper)

    def policy_step(
        model: QNetwork, obs: Shaped[Tensor, "E *O"], explored: Int[Tensor, "E"]
    ) -> tuple[Int[Tensor, "E"]]:
        return (math.epsilon_greedy(model(obs), explored),)

    rollout_steps = pytorch.rollout_steps(env, policy_step, wrap)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        epsilon = epsilon_at(math, state.replay_inserted, state.hyper, config)
        explored = math.epsilon_noise(state.generator, epsilon, (config.num_steps, config.num_envs), env.actions.size)
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, explored))
        return state, Transition(*outcome)

    @torch.no_grad()
    def bootstrap(target: QNetwork, next_obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B A"]:
        return target(next_obs)

    bootstrap = wrap("bootstrap", bootstrap)

    def objective(
        model: QNetwork, minibatch: Minibatch, next_value: Float[Tensor, "B A"], hyper: Hyper
    ) -> tuple[Float[Tensor, ""], Metrics]:
        selecting_value = model(minibatch.next_obs) if config.double else next_value
        target = td_target(math, next_value, selecting_value, minibatch, hyper)
        return dqn_loss(math, model(minibatch.obs), target, minibatch)

    objective = wrap("objective", objective)

    def minibatch_step(
        model: QNetwork, target: QNetwork, adam: math.AdamState, minibatch: Minibatch, hyper: Hyper
    ) -> Metrics:
        next_value = bootstrap(target, minibatch.next_obs)
        loss, metrics = objective(model, minibatch, next_value, hyper)
        params = list(model.parameters())
        gradient = torch.autograd.grad(loss, params)
        norm = optimiser.update(gradient, adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"grad_norm": norm}

    minibatch_step = wrap("minibatch_step", minibatch_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        return state, minibatch_step(state.model, state.target, state.adam, minibatch, state.hyper)

    def gradient_steps(state: State, index: Int[Tensor, "U B"]) -> Metrics:
        losses = [learn(state, math.gather(state.replay, row))[1] for row in index]
        return {name: torch.stack([x[name] for x in losses]).mean() for name in losses[0]}

    def no_gradient_steps(state: State, index: Int[Tensor, "U B"]) -> Metrics:
        with index.device:
            return nan_metrics(torch.full, LOSS_METRICS, dtype)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        epsilon = epsilon_at(math, state.replay_inserted, state.hyper, config)
        state.replay = math.insert(state.replay, state.replay_inserted, to_experience(batch, config))
        state.replay_inserted += config.batch_size
        inserted, shape = state.replay_inserted, (config.num_updates, config.minibatch_size)
        index = math.sample_indices(state.generator, state.replay, inserted, shape)
        losses = (gradient_steps if learns(inserted, config) else no_gradient_steps)(state, index)
        if updates_target(inserted, config):
            math.polyak(state.target, state.model, state.hyper.tau)
        return state, losses | {"epsilon": epsilon} | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, memory: tuple[()], obs: Shaped[Tensor, "B *O"]) -> tuple[tuple[()], Int[Tensor, "B"]]:
        return memory, math.categorical.greedy(state.model(obs))

    return torch_state.agent(
        State, config, env, make=make, init=init, rollout=rollout, update=update, learn=learn, act=act
    )
