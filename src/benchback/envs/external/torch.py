"""An external environment between two calls of a torch policy. On the CPU its tensors are views of NumPy's arrays."""

from dataclasses import dataclass

import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from benchback.envs.external import ExternalEnv, ExternalState
from benchback.envs.interface import Env, EnvState, Step
from benchback.envs.torch import random


def serve(external: ExternalEnv) -> Env:
    """The environment with torch tensors at its interface, on the device of its arguments."""

    # In inference mode, as in a rollout: a compiled policy then gets only one kind of tensor.
    @torch.inference_mode()
    def reset(generator: torch.Generator) -> EnvState:
        seed = torch.randint(2**32, (), generator=generator, device=generator.device, dtype=torch.int64)
        step_index, obs = external.reset(int(seed))
        return EnvState(ExternalState(step_index), torch.as_tensor(obs, device=generator.device), None, None)

    def draw(generator: torch.Generator, num_steps: int) -> UInt8[Tensor, "T 0"]:
        return torch.zeros((num_steps, 0), dtype=torch.uint8)  # the environment draws its own randomness

    return Env(
        id=external.id,
        framework="torch",
        num_envs=external.num_envs,
        observation_shape=external.copies.observation_shape,
        actions=external.copies.actions,
        random=random,
        reset=reset,
        draw=draw,
        step=ExternalStep(external),
        external=external,
    )


@dataclass(frozen=True)
class ExternalStep:
    """An environment step called by torch and computed in Python."""

    external: ExternalEnv

    def __call__(
        self, state: EnvState, action: Shaped[Tensor, "E *A"], noise: UInt8[Tensor, "0"]
    ) -> tuple[EnvState, Step]:
        chosen = action.cpu().numpy()
        self.external.count_transfer(chosen)
        step_index, step = self.external.step(state.inner.step_index, chosen)
        # If no episode ended, both observations are the same array, which is transferred once.
        transferred = step[1:] if step.obs is step.final_obs else step
        self.external.count_transfer(*transferred)
        tensors = [torch.as_tensor(x, device=action.device) for x in step[1:]]
        obs = tensors[3] if step.obs is step.final_obs else torch.as_tensor(step.obs, device=action.device)
        return EnvState(ExternalState(step_index), obs, None, None), Step(obs, *tensors)

    def eager(self) -> "ExternalStep":
        """The same step: it is never compiled."""
        return self
