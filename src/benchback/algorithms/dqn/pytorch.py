"""DQN in PyTorch: a module, an optimiser, a replay and a generator that change in place."""

from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.dqn.config import Config, Hyper
from benchback.algorithms.dqn.loss import LOSS_METRICS, Minibatch, dqn_loss, epsilon, learns, renews_target
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.offpolicy import Transition, to_experience
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import MLP, Replace
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math
from benchback.math.torch.optimisers import AdamState


class QNetwork(nn.Module):
    """One tower: the value of each action."""

    def __init__(
        self,
        observation_size: int,
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: torch.dtype,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.critic = MLP(observation_size, hidden, num_actions, 1.0, dtype, generator, "relu")

    def forward(self, obs: Shaped[Tensor, "*B O"]) -> Float[Tensor, "*B A"]:
        return self.critic(obs)


@dataclass
class State:
    model: QNetwork
    target: QNetwork
    adam: AdamState
    replay: math.Replay
    env: EnvState
    generator: torch.Generator
    hyper: Hyper


def make(config: Config, env: Env, put: Replace = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.learning_iterations,
        clip=False,
    )

    def init(seed: int, weights: Weights | None = None) -> State:
        generator = env.random(seed)
        model = QNetwork(env.observation_size, config.hidden, env.actions.size, dtype, generator)
        target = deepcopy(model).requires_grad_(False)
        adam = optimiser.init(list(model.parameters()))
        env_state = env.reset(generator)
        obs, zero = env_state.obs[0], torch.zeros((), dtype=dtype, device=generator.device)
        row = Minibatch(obs, zero.to(torch.int32), zero, obs, zero.to(torch.bool))
        replay = math.empty_replay(row, config.replay_capacity)
        hyper = pytorch.as_data(config.hyper, dtype)
        return torch_state.transplant(weights, State(model, target, adam, replay, env_state, generator, hyper))

    def policy_step(model: QNetwork, obs: Shaped[Tensor, "E O"], explored: Int[Tensor, "E"]) -> tuple[Int[Tensor, "E"]]:
        return (math.epsilon_greedy(model(obs), explored),)

    rollout_steps = pytorch.rollout_steps(env, policy_step, put)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        share = epsilon(math, state.replay.inserted, state.hyper, config)
        explored = math.epsilon_noise(state.generator, share, (config.num_steps, config.num_envs), env.actions.size)
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, explored))
        return state, Transition(*outcome)

    @torch.no_grad()
    def bootstrap(target: QNetwork, next_obs: Shaped[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        return target(next_obs)

    bootstrap = put("bootstrap", bootstrap)

    def objective(
        model: QNetwork, minibatch: Minibatch, next_value: Float[Tensor, "B A"], hyper: Hyper
    ) -> tuple[Float[Tensor, ""], Metrics]:
        online = model(minibatch.next_obs) if config.double else None
        return dqn_loss(math, model(minibatch.obs), next_value, online, minibatch, hyper, config)

    objective = put("objective", objective)

    def minibatch_step(
        model: QNetwork, target: QNetwork, adam: AdamState, minibatch: Minibatch, hyper: Hyper
    ) -> Metrics:
        next_value = bootstrap(target, minibatch.next_obs)
        loss, metrics = objective(model, minibatch, next_value, hyper)
        params = list(model.parameters())
        gradient = torch.autograd.grad(loss, params)
        norm = optimiser.update(gradient, adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"grad_norm": norm}

    minibatch_step = put("minibatch_step", minibatch_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        return state, minibatch_step(state.model, state.target, state.adam, minibatch, state.hyper)

    def train(state: State, index: Int[Tensor, "U B"]) -> Metrics:
        losses = [learn(state, math.gather(state.replay, row))[1] for row in index]
        return {name: torch.stack([x[name] for x in losses]).mean() for name in losses[0]}

    def wait(state: State, index: Int[Tensor, "U B"]) -> Metrics:
        return dict.fromkeys(LOSS_METRICS, torch.full((), torch.nan, dtype=dtype, device=index.device))

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        share = epsilon(math, state.replay.inserted, state.hyper, config)
        replay = math.insert(state.replay, to_experience(batch, config))
        index = math.sample_indices(state.generator, replay, (config.num_updates, config.minibatch_size))
        losses = train(state, index) if learns(replay.inserted, config) else wait(state, index)
        if renews_target(replay.inserted, config):
            math.polyak(state.target, state.model, state.hyper.tau)
        return state, losses | {"epsilon": share} | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, obs: Shaped[Tensor, "B O"]) -> Int[Tensor, "B"]:
        return math.categorical.greedy(state.model(obs))

    def export(state: State) -> Weights:
        return torch_state.export(state)

    return Agent(
        init=init,
        rollout=rollout,
        update=update,
        learn=learn,
        act=act,
        export=export,
        within=lambda put: make(config, env, put),
    )
