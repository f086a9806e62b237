"""Standard normal noise, in float64, as a function of (secret key, position)."""

from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpexp.streams import Stream

__all__ = ["GaussianNoise", "NoNoise", "Noise"]


class Noise(Protocol):
    """Where noise comes from."""

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """`size` draws for one release; the same position gives the same draws."""
        ...


@final
@dataclass(frozen=True)
class GaussianNoise:
    """N(0, 1) by the ziggurat method in float64.

    Float32 generators by 24-bit Box-Muller are cut off at 5.77σ, which alone breaks δ = 1e-5 over many
    coordinates; this one has its full tail.
    """

    stream: Stream

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Draws for the release at `position` (the lot's index), shape (size,)."""
        return self.stream.generator(position).standard_normal(size)


@final
@dataclass(frozen=True)
class NoNoise:
    """Zeros: training without privacy, on the same path."""

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Zeros, shape (size,)."""
        return np.zeros(size)
