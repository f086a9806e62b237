"""The default noise: statistically right, and cheap."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpexp.streams import Stream

__all__ = ["GaussianNoise"]


@final
@dataclass(frozen=True)
class GaussianNoise:
    """N(0, 1) in float64: pairs √(2E)·(cos 2πU, sin 2πU) of an exponential E and a uniform U.

    That is the method of Box and Muller, but E comes from a ziggurat and not from the logarithm of a uniform.
    Float32 generators by 24-bit Box-Muller are cut off at 5.77σ, which alone breaks δ = 1e-5 over many
    coordinates; this one reaches 9.4σ, where a float64 logarithm would end at 8.6σ. It does not resist an
    adversary who inverts the generator or reads the low bits of what is released: `SecureGaussianNoise`.

    Torch's threads draw it: not in a process that was forked after torch had used them, where they hang.

    References:
        Box and Muller (1958), A note on the generation of random normal deviates, Ann. Math. Stat. 29(2).
        Marsaglia and Tsang (2000), The ziggurat method, J. Stat. Software 5(8).
    """

    stream: Stream
    spacing: ClassVar[float] = 0.0

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Draws for the release at `position` (the lot's index), shape (size,)."""
        import torch  # here: its cosines are faster than NumPy's, and a plan needs neither

        generator, pairs = self.stream.generator(position), (size + 1) // 2
        values = np.empty((2, pairs))
        generator.standard_exponential(out=values[0])
        generator.random(out=values[1])
        draws = torch.from_numpy(values)
        radii, angles = torch.sqrt(2 * draws[0]), draws[1].mul_(2 * math.pi)
        torch.cos(angles, out=draws[0])
        angles.sin_()
        draws.mul_(radii)
        return values.reshape(-1)[:size]
