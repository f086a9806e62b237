"""Noise from a stream cipher, summed and on a lattice, against floating-point attacks.

What is protected, what is not, and why: docs/theory/noise.md.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpexp.noise.lattice import LATTICE, to_lattice
from dpexp.streams import Stream

__all__ = ["SecureGaussianNoise"]

_WORDS = 4  # 64-bit words per draw: two radii, two angles
_BLOCK = 8192  # draws at once: what they need stays in the second-level cache


@final
@dataclass(frozen=True)
class SecureGaussianNoise:
    """N(0, 1) rounded to multiples of `LATTICE`, from ChaCha20 bits, in a time that does not depend on them.

    Each draw is (R₁cos θ₁ + R₂cos θ₂)/√2 with two independent Box-Muller pairs: the distribution, and the
    four hidden uniforms, of (z₁ + z₂ + z₃ + z₄)/2 in Holohan and Braghin, at half the trigonometry.

    *Formal guarantees.* None in floating point. The bits are as unpredictable as ChaCha20 under a key
    of the operating system; values reach 13.4σ; low bits carry nothing, if values and noise are added on
    the lattice (`to_lattice`).

    References:
        Mironov (2012), On significance of the least significant bits for differential privacy, CCS.
        Holohan and Braghin (2021), Secure random sampling in differential privacy, arXiv 2107.10138,
        section 5.1 (2n Gaussian draws, n = 2).
        Haney et al. (2022), Precision-based attacks and interval refining, arXiv 2207.13793.
    """

    stream: Stream
    spacing: ClassVar[float] = LATTICE

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Draws for the release at `position` (the lot's index), shape (size,)."""
        draws, source = np.empty(size), self.stream.keystream(position)
        for start in range(0, size, _BLOCK):
            block = draws[start : start + _BLOCK]
            block[:] = _from_words(source.words(_WORDS * block.size).reshape(_WORDS, -1))
        return to_lattice(draws)


def _from_words(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform words (4, n) to normal draws (n,)."""
    pairs = _radii(words[:2])
    pairs *= _cosines(words[2:])
    draws: NDArray[np.float64] = pairs[0] + pairs[1]
    draws *= math.sqrt(0.5)
    return draws


def _radii(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """√(-2 log u) with u = (k + ½)/2⁶⁴: never log 0, and small u in full precision (Box and Muller, 1958)."""
    radii = words.astype(np.float64)
    radii += 0.5
    radii *= 2.0**-64
    np.log(radii, out=radii)
    radii *= -2.0
    return np.sqrt(radii, out=radii)


def _cosines(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Cosine of a uniform angle: 63 bits for the first quadrant, the last bit for the sign."""
    import torch  # here: its cosines are faster than NumPy's, and a plan needs neither

    cosines = (words >> np.uint64(1)).astype(np.float64)
    cosines += 0.5
    cosines *= 2.0**-64 * math.pi  # 63 bits of π/2
    torch.from_numpy(cosines).cos_()
    bits = cosines.view(np.uint64)
    bits ^= words << np.uint64(63)  # the sign bit; exactly symmetric, and without a branch
    return cosines
