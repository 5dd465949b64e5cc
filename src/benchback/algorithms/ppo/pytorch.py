"""PPO in PyTorch: a module, an optimiser and a generator that change in place."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from benchback.agent import Agent, Metrics, Weights
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import Normaliser, absorbed, fresh_normaliser, visible, visible_batch
from benchback.algorithms.onpolicy import Transition, distribution
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import Minibatch, learnable, ppo_loss
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import MLP, Replace
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math
from benchback.math.torch.optimisers import AdamState


class ActorCritic(nn.Module):
    """Separate towers for policy and value."""

    def __init__(
        self,
        observation_size: int,
        hidden: tuple[int, ...],
        num_actions: int,
        dtype: torch.dtype,
        initial_log_std: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.actor = MLP(observation_size, hidden, num_actions, 0.01, dtype, generator)
        self.critic = MLP(observation_size, hidden, 1, 1.0, dtype, generator)
        # Of real-valued actions.
        self.log_std = None
        if initial_log_std is not None:
            start = torch.full((num_actions,), initial_log_std, dtype=dtype, device=generator.device)
            self.log_std = nn.Parameter(start)

    def forward(self, obs: Shaped[Tensor, "*B O"]) -> tuple[Float[Tensor, "*B P"], Float[Tensor, "*B"]]:
        return self.policy(obs), self.value(obs)

    def policy(self, obs: Shaped[Tensor, "*B O"]) -> Float[Tensor, "*B P"]:
        out = self.actor(obs)
        return out if self.log_std is None else math.gaussian.parameters(out, self.log_std)

    def value(self, obs: Shaped[Tensor, "*B O"]) -> Float[Tensor, "*B"]:
        return self.critic(obs).squeeze(-1)


@dataclass
class State:
    model: ActorCritic
    adam: AdamState
    normaliser: Normaliser | tuple[()]
    env: EnvState
    generator: torch.Generator
    hyper: Hyper


def make(config: Config, env: Env, put: Replace = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    policy = distribution(math, env.actions)
    initial_log_std = None if env.actions.kind == "discrete" else config.initial_log_std
    optimiser = math.adam(
        anneal=config.anneal,
        steps_per_iteration=config.updates_per_iteration,
        num_iterations=config.num_iterations,
    )

    def init(seed: int, weights: Weights | None = None) -> State:
        generator = env.random(seed)
        size = env.observation_size
        model = ActorCritic(size, config.hidden, env.actions.size, dtype, initial_log_std, generator)
        adam = optimiser.init(list(model.parameters()))
        with generator.device:
            normaliser = fresh_normaliser(math, config, env.observation_size, dtype)
        hyper = pytorch.as_data(config.hyper, dtype)
        state = State(model, adam, normaliser, env.reset(generator), generator, hyper)
        return torch_state.transplant(weights, state)

    def policy_step(
        model: ActorCritic, obs: Shaped[Tensor, "E O"], noise: Float[Tensor, "E A"], normaliser: Any
    ) -> tuple[Shaped[Tensor, "E *A"], Float[Tensor, "E P"]]:
        head = model.policy(visible(math, normaliser, obs))
        return policy.sample(head, noise), head

    rollout_steps = pytorch.rollout_steps(env, policy_step, put)

    def appraise(model: ActorCritic, outcome: tuple[Tensor, ...], normaliser: Any) -> Transition:
        obs, action, head, reward, terminated, truncated, final_obs, *episode = outcome
        log_prob = policy.log_prob(head, action)
        value, final_value = (model.value(visible(math, normaliser, x)) for x in (obs, final_obs))
        return Transition(obs, action, log_prob, value, reward, terminated, truncated, final_value, *episode)

    appraise = put("appraise", appraise)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Transition]:
        env_noise = env.draw(state.generator, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        action_noise = policy.noise(state.generator, shape, dtype)
        state.env, outcome = rollout_steps(state.model, state.env, (env_noise, action_noise), state.normaliser)
        # Nothing in a step needs a value: eager torch computes those of all steps in the time of a few.
        return state, appraise(state.model, outcome, state.normaliser)

    def objective(model: ActorCritic, minibatch: Minibatch, hyper: Hyper) -> tuple[Float[Tensor, ""], Metrics]:
        head, value = model(minibatch.obs)
        return ppo_loss(math, policy, head, value, minibatch, hyper, config)

    objective = put("objective", objective)

    def minibatch_step(model: ActorCritic, adam: AdamState, minibatch: Minibatch, hyper: Hyper) -> Metrics:
        loss, metrics = objective(model, minibatch, hyper)
        params = list(model.parameters())
        gradient = torch.autograd.grad(loss, params)
        norm = optimiser.update(gradient, adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"grad_norm": norm}

    minibatch_step = put("minibatch_step", minibatch_step)

    def learn(state: State, minibatch: Minibatch) -> tuple[State, Metrics]:
        return state, minibatch_step(state.model, state.adam, minibatch, state.hyper)

    def update(state: State, batch: Transition) -> tuple[State, Metrics]:
        with torch.no_grad():
            last_value = state.model.value(visible(math, state.normaliser, state.env.obs))
            data = learnable(math, visible_batch(math, state.normaliser, batch), last_value, state.hyper, config)
        index = math.minibatch_indices(
            state.generator,
            batch_size=config.batch_size,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        losses = [learn(state, math.take(data, row))[1] for row in index]
        state.normaliser = absorbed(math, state.normaliser, batch, state.hyper.gamma)
        mean = {name: torch.stack([x[name] for x in losses]).mean() for name in losses[0]}
        return state, mean | episode_metrics(math, batch)

    @torch.no_grad()
    def act(state: State, obs: Shaped[Tensor, "B O"]) -> Shaped[Tensor, "B *A"]:
        return policy.greedy(state.model.policy(visible(math, state.normaliser, obs)))

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
