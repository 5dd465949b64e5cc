"""Recurrent PPO in PyTorch: module, optimiser and generator are updated in place, time is a loop."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from benchback.agent import Agent, Data, Environment, HyperParameters, Memory, Metrics, Network, Optimiser, Randomness
from benchback.algorithms.episodes import episode_metrics
from benchback.algorithms.normalising import (
    Normaliser,
    init_normaliser,
    normalise_batch,
    normalise_obs,
    update_normaliser,
)
from benchback.algorithms.onpolicy import Transition, action_distribution, bootstrap
from benchback.algorithms.ppo.config import Config, Hyper
from benchback.algorithms.ppo.loss import ppo_loss
from benchback.algorithms.ppo.recurrent.sequences import Rollout, Sequences, as_rows, make_sequences, reset_where, take
from benchback.backends import pytorch, torch_state
from benchback.backends.pytorch import Wrap, dense
from benchback.envs.interface import Env, EnvState
from benchback.math import torch as math
from benchback.math.torch import gaussian


class GRU(nn.Module):
    """nn.GRUCell without its two superfluous biases, whose gradients would be those of others a second time."""

    def __init__(self, width: int, dtype: torch.dtype, generator: torch.Generator) -> None:
        super().__init__()
        self.input = gates(width, True, dtype, generator)
        self.hidden = gates(width, False, dtype, generator)
        self.bias_n = nn.Parameter(torch.zeros(width, dtype=dtype, device=generator.device))

    def forward(self, x: Float[Tensor, "B H"], memory: Float[Tensor, "B H"]) -> Float[Tensor, "B H"]:
        """The memory after an input: gates r and z, candidate n, (1 - z) n + z memory."""
        input_r, input_z, input_n = self.input(x).chunk(3, 1)
        hidden_r, hidden_z, hidden_n = self.hidden(memory).chunk(3, 1)
        r = torch.sigmoid(input_r + hidden_r)
        z = torch.sigmoid(input_z + hidden_z)
        n = torch.tanh(input_n + r * (hidden_n + self.bias_n))
        return (1 - z) * n + z * memory


def gates(width: int, bias: bool, dtype: torch.dtype, generator: torch.Generator) -> nn.Linear:
    """A layer for three gates, each with orthogonal weights; biases are zero."""
    layer = nn.Linear(width, 3 * width, bias, dtype=dtype, device="meta").to_empty(device=generator.device)
    for gate in layer.weight.data.chunk(3):
        nn.init.orthogonal_(gate, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class RecurrentActorCritic(nn.Module):
    """An encoder and a cell with memory, shared by the heads of actor and critic."""

    def __init__(
        self, sizes: tuple[int, int, int], dtype: torch.dtype, log_std: Any, generator: torch.Generator
    ) -> None:
        super().__init__()
        inputs, width, num_actions = sizes
        self.encoder = dense(inputs, width, 2**0.5, dtype, generator)
        self.gru = GRU(width, dtype, generator)
        layers = [dense(width, width, 2.0, dtype, generator), dense(width, num_actions, 0.01, dtype, generator)]
        self.actor = nn.Sequential(layers[0], nn.ReLU(), layers[1])
        layers = [dense(width, width, 2.0, dtype, generator), dense(width, 1, 1.0, dtype, generator)]
        self.critic = nn.Sequential(layers[0], nn.ReLU(), layers[1])
        # Log standard deviation of continuous actions.
        self.log_std = None
        if log_std is not None:
            self.log_std = nn.Parameter(log_std.to(generator.device, dtype).repeat(num_actions))

    def encode(self, obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B H"]:
        """The input of the cell; flattens observations."""
        return torch.relu(self.encoder(obs.reshape(obs.shape[0], -1).to(self.encoder.weight.dtype)))

    def remember(self, memory: Float[Tensor, "B H"], obs: Shaped[Tensor, "B *O"]) -> Float[Tensor, "B H"]:
        """The memory after one observation."""
        return self.gru(self.encode(obs), memory)

    def remember_all(
        self, memory: Float[Tensor, "B H"], obs: Shaped[Tensor, "T B *O"], done: Bool[Tensor, "T B"]
    ) -> Float[Tensor, "T B H"]:
        """The memory after every observation of sequences, in which episodes end where `done`."""
        x = self.encode(obs.flatten(0, 1)).unflatten(0, done.shape)
        return pytorch.scan(self.remember_next, memory, (x, done), gradient=True)[1][0]

    def remember_next(self, memory: Float[Tensor, "B H"], seen: Any) -> tuple[Any, tuple[Tensor]]:
        x, done = seen
        memory = self.gru(x, memory)
        return reset_where(done, memory), (memory,)

    def policy(self, memory: Float[Tensor, "B H"]) -> Float[Tensor, "B P"]:
        """Parameters of the action distribution, given the memory after the observation."""
        out = self.actor(memory)
        return out if self.log_std is None else gaussian.parameters(out, self.log_std)

    def value(self, memory: Float[Tensor, "B H"]) -> Float[Tensor, "B"]:
        """The critic's estimate of the return, given the memory after the observation."""
        return self.critic(memory).squeeze(-1)


@dataclass
class State:
    model: Network[RecurrentActorCritic]
    adam: Optimiser[math.AdamState]
    normaliser: Data[Normaliser | tuple[()]]
    env: Environment[EnvState]
    memory: Memory[Float[Tensor, "E H"]]
    generator: Randomness[torch.Generator]
    hyper: HyperParameters[Hyper]


def make(config: Config, env: Env, wrap: Wrap = pytorch.keep) -> Agent:
    dtype = getattr(torch, config.dtype)
    distribution = action_distribution(math, env.actions)
    (width,) = config.hidden
    optimiser = math.adam(
        anneal=config.anneal, steps_per_iteration=config.updates_per_iteration, num_iterations=config.num_iterations
    )

    def initial_memory(num_envs: int) -> Float[Tensor, "E H"]:
        return torch.zeros(num_envs, width, dtype=dtype)

    def init(generator: torch.Generator, hyper: Hyper) -> State:
        hyper = pytorch.as_data(hyper, dtype)
        log_std = None if env.actions.kind == "discrete" else hyper.initial_log_std
        model = RecurrentActorCritic((env.observation_size, width, env.actions.size), dtype, log_std, generator)
        adam = optimiser.init(list(model.parameters()))
        with generator.device:
            normaliser = init_normaliser(math, config, env.observation_shape, dtype)
            memory = initial_memory(config.num_envs)
        return State(model, adam, normaliser, env.reset(generator), memory, generator, hyper)

    def policy_step(
        model: RecurrentActorCritic, memory: Any, obs: Shaped[Tensor, "E *O"], noise: Any, normaliser: Any
    ) -> tuple[Shaped[Tensor, "E *A"], Float[Tensor, "E P"], Float[Tensor, "E H"]]:
        memory = model.remember(memory, normalise_obs(math, normaliser, obs))
        policy_params = model.policy(memory)
        return distribution.sample(policy_params, noise), policy_params, memory

    rollout_steps = pytorch.remembering_steps(env, policy_step, reset_where, wrap)

    def final_values(
        model: RecurrentActorCritic, memory: Float[Tensor, "T E H"], normaliser: Any, obs: Shaped[Tensor, "T E *O"]
    ) -> Float[Tensor, "T E"]:
        rows = normalise_obs(math, normaliser, obs).flatten(0, 1)
        return model.value(model.remember(memory.flatten(0, 1), rows)).reshape(memory.shape[:2])

    def finish_rollout(model: RecurrentActorCritic, outcome: tuple[Tensor, ...], normaliser: Any) -> Transition:
        obs, action, policy_params, memory, reward, terminated, truncated, final_obs, *episode = outcome
        log_prob = distribution.log_prob(policy_params, action)
        value = model.value(memory.flatten(0, 1)).reshape(memory.shape[:2])
        final_value = final_values(model, memory, normaliser, final_obs)
        return Transition(obs, action, log_prob, value, reward, terminated, truncated, final_value, *episode)

    finish_rollout = wrap("finish_rollout", finish_rollout)

    @torch.no_grad()
    def rollout(state: State) -> tuple[State, Rollout]:
        env_noise = env.draw(state.generator, config.num_steps)
        shape = config.num_steps, config.num_envs, env.actions.size
        action_noise = distribution.noise(state.generator, shape, dtype)
        before = state.env, state.memory
        (state.env, memory), outcome = rollout_steps(state.model, before, (env_noise, action_noise), state.normaliser)
        state.memory = memory.clone()  # of inference mode: it could not be learnt from
        # Values are not needed to act: eager torch computes them for all steps in the time of a few.
        return state, Rollout(finish_rollout(state.model, outcome, state.normaliser), before[1])

    def objective(model: RecurrentActorCritic, sequences: Sequences, hyper: Hyper) -> tuple[Float[Tensor, ""], Metrics]:
        memory = model.remember_all(sequences.memory, sequences.obs, sequences.done).flatten(0, 1)
        found = model.policy(memory), model.value(memory)
        return ppo_loss(math, distribution, *found, as_rows(sequences), hyper, config)

    objective = wrap("objective", objective)

    def minibatch_step(
        model: RecurrentActorCritic, adam: math.AdamState, sequences: Sequences, hyper: Hyper
    ) -> Metrics:
        loss, metrics = objective(model, sequences, hyper)
        params = list(model.parameters())
        gradient = torch.autograd.grad(loss, params)
        norm = optimiser.update(gradient, adam, params, hyper=hyper)
        return {name: x.detach() for name, x in metrics.items()} | {"grad_norm": norm}

    minibatch_step = wrap("minibatch_step", minibatch_step)

    def learn(state: State, sequences: Sequences) -> tuple[State, Metrics]:
        return state, minibatch_step(state.model, state.adam, sequences, state.hyper)

    def update(state: State, batch: Rollout) -> tuple[State, Metrics]:
        normaliser, hyper = state.normaliser, state.hyper
        with torch.no_grad():
            memory = state.model.remember(state.memory, normalise_obs(math, normaliser, state.env.obs))
            seen = normalise_batch(math, normaliser, batch.steps)
            next_value, terminated = bootstrap(math, seen, state.model.value(memory), config.truncation)
            advantage = math.gae(
                seen.reward, seen.value, next_value, terminated, seen.done, gamma=hyper.gamma, lam=hyper.gae_lambda
            )
            data = make_sequences(seen, batch.memory, advantage)
        index = math.minibatch_indices(
            state.generator,
            batch_size=config.num_envs,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
        )
        losses = [learn(state, take(data, chosen))[1] for chosen in index]
        state.normaliser = update_normaliser(math, normaliser, batch.steps, hyper.gamma)
        mean = {name: torch.stack([x[name] for x in losses]).mean() for name in losses[0]}
        return state, mean | episode_metrics(math, batch.steps)

    @torch.no_grad()
    def act(
        state: State, memory: Float[Tensor, "B H"], obs: Shaped[Tensor, "B *O"]
    ) -> tuple[Float[Tensor, "B H"], Shaped[Tensor, "B *A"]]:
        # A first memory is made without knowing where the network is.
        memory = state.model.remember(memory.to(obs.device), normalise_obs(math, state.normaliser, obs))
        return memory, distribution.greedy(state.model.policy(memory))

    functions = {"init": init, "rollout": rollout, "update": update, "learn": learn, "act": act}
    return torch_state.agent(State, config, env, make=make, initial_memory=initial_memory, **functions)
