"""What a source of noise is, and the one without any."""

from dataclasses import dataclass
from typing import ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["NoNoise", "Noise"]


class Noise(Protocol):
    """Where noise comes from.

    Attributes:
        spacing: What draws are multiples of, in units of their std; 0 where they are not on a lattice.
    """

    @property
    def spacing(self) -> float:
        """The lattice's spacing."""
        ...

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """`size` draws for one release; the same position gives the same draws.

        The array is the caller's: it may be overwritten.
        """
        ...


@final
@dataclass(frozen=True)
class NoNoise:
    """Zeros: training without privacy, on the same path."""

    spacing: ClassVar[float] = 0.0

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Zeros, shape (size,)."""
        return np.zeros(size)
