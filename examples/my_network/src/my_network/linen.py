"""The residual network in Flax Linen, for PPO, VPG and DQN."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Shaped

from benchback.agent import Gradients
from benchback.algorithms.dqn import linen as dqn
from benchback.backends import linen
from benchback.backends.kernel_gradients import DOT_GENERAL


class Residual(nn.Module):
    """Dense layers around which the signal also passes unchanged."""

    hidden: tuple[int, ...]
    outputs: int
    head_scale: float
    dtype: jnp.dtype
    activation: str = "tanh"
    gradients: Gradients = "framework"

    @nn.compact
    def __call__(self, x: Shaped[Array, "B *I"]) -> Float[Array, "B O"]:
        activate = getattr(nn, self.activation)
        x = x.reshape(len(x), -1).astype(self.dtype)
        x = activate(self.dense(self.hidden[0], 2**0.5, "0")(x))
        for i, width in enumerate(self.hidden[1:], 1):
            norm = nn.LayerNorm(epsilon=1e-5, use_fast_variance=False, param_dtype=self.dtype, name=f"{i}_norm")
            x = x + activate(self.dense(width, 2**0.5, str(i))(norm(x)))
        return self.dense(self.outputs, self.head_scale, str(len(self.hidden)))(x)

    def dense(self, width: int, scale: float, name: str) -> nn.Dense:
        """A layer with orthogonal weights and zero biases."""
        return nn.Dense(
            width,
            kernel_init=nn.initializers.orthogonal(scale),
            dtype=self.dtype,
            param_dtype=self.dtype,
            dot_general=DOT_GENERAL[self.gradients],
            name=name,
        )


class ActorCritic(linen.ActorCritic):
    """Separate residual networks for actor and critic."""

    tower = Residual


class QNetwork(dqn.QNetwork):
    """A residual network for the value of each action."""

    tower = Residual
