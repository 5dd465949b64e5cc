"""A host environment between two calls of a torch policy. On the CPU its tensors are views of NumPy's arrays."""

from dataclasses import dataclass

import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from benchback.envs.host import Host, HostState
from benchback.envs.interface import Env, EnvState, Step
from benchback.envs.torch import random


def serve(host: Host) -> Env:
    """The environment with torch tensors at its border, on the device of what it is given."""
    copies, num_envs = host.copies, host.num_envs

    # In inference mode, as in a rollout: a compiled policy then sees one kind of tensor only.
    @torch.inference_mode()
    def reset(generator: torch.Generator) -> EnvState:
        seed = torch.randint(2**32, (), generator=generator, device=generator.device, dtype=torch.int64)
        turn, obs = host.reset(int(seed))
        return EnvState(HostState(turn), torch.as_tensor(obs, device=generator.device), None, None)

    def draw(generator: torch.Generator, num_steps: int) -> UInt8[Tensor, "T 0"]:
        return torch.zeros((num_steps, 0), dtype=torch.uint8)  # its chance is its own

    return Env(
        host.id, "torch", num_envs, copies.observation_size, copies.actions, random, reset, draw, HostStep(host), host
    )


@dataclass(frozen=True)
class HostStep:
    """A step that torch calls and Python computes."""

    host: Host

    def __call__(
        self, state: EnvState, action: Shaped[Tensor, "E *A"], noise: UInt8[Tensor, "0"]
    ) -> tuple[EnvState, Step]:
        chosen = action.cpu().numpy()
        self.host.crossed(chosen)
        turn, step = self.host.step(state.inner.turn, chosen)
        # Where no episode ended, both observations are one array, which crosses once.
        crossing = step[1:] if step.obs is step.final_obs else step
        self.host.crossed(*crossing)
        given = [torch.as_tensor(x, device=action.device) for x in step[1:]]
        obs = given[3] if step.obs is step.final_obs else torch.as_tensor(step.obs, device=action.device)
        return EnvState(HostState(turn), obs, None, None), Step(obs, *given)

    def eager(self) -> "HostStep":
        """The same step: nothing in it is ever compiled."""
        return self
