"""Convolutional towers as data, the same for every framework, and what follows from it: shapes and sizes.

`cnn` is the network of MinAtar (Young and Tian 2019), `nature_cnn` that of Atari (Mnih et al. 2015). A name that begins
with `shared_` is the same tower as one trunk, with an actor and a critic of one linear layer each on it. Importing this
imports no framework.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Convolution(NamedTuple):
    """A convolution without padding, followed by relu."""

    filters: int
    size: int
    """Height and width of its kernel."""
    stride: int

    def after(self, side: int) -> int:
        """Positions of the kernel along a side of the image; none if that is not positive."""
        return (side - self.size) // self.stride + 1


class Tower(NamedTuple):
    """Convolutions, then dense layers, each followed by relu."""

    convolutions: tuple[Convolution, ...]
    dense: tuple[int, ...]
    """Widths of the dense layers, unless `hidden_sizes` gives others."""
    shared: bool = False
    """One trunk for actor and critic."""

    def image(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Height, width and channels after the convolutions, of an image of this shape."""
        height, width, channels = shape
        for convolution in self.convolutions:
            height, width, channels = convolution.after(height), convolution.after(width), convolution.filters
        return height, width, channels

    def products(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Inputs of all places of each convolution together, and its outputs at one of them."""
        height, width, channels = shape
        found = []
        for convolution in self.convolutions:
            height, width = convolution.after(height), convolution.after(width)
            found.append((height * width * convolution.size**2 * channels, convolution.filters))
            channels = convolution.filters
        return found

    @property
    def smallest(self) -> int:
        """The shortest side of an image that the convolutions leave something of."""
        side = 1
        for convolution in reversed(self.convolutions):
            side = (side - 1) * convolution.stride + convolution.size
        return side


MINATAR = Tower((Convolution(16, 3, 1),), (128,))
NATURE = Tower((Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1)), (512,))
TOWERS: Mapping[str, Tower] = {
    "cnn": MINATAR,
    "nature_cnn": NATURE,
    "shared_cnn": MINATAR._replace(shared=True),
    "shared_nature_cnn": NATURE._replace(shared=True),
}
"""Name of a network -> its tower."""
