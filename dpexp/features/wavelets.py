"""Morlet wavelets and the Gaussian that averages them: a fixed, public filter bank in float64."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["FilterBank", "gaussian", "morlet"]

_TAILS = 8  # a filter is summed over periods until this many of its standard deviations are covered


@final
@dataclass(frozen=True, kw_only=True)
class FilterBank:
    """The wavelets ψ_{j,θ} and the low-pass φ_J of a scattering transform on a periodic grid.

    Their constants are those of ScatNet and Kymatio: σ_j = 0.8·2^j, ξ_j = (3π/4)·2^-j, slant 4/L, angles
    θ_l = (⌊L/2⌋ - 1 - l)·π/L; φ_J is isotropic with σ = 0.8·2^(J-1).

    Attributes:
        grid: (M, N), the padded size in pixels.
        scales: J >= 1.
        angles: L >= 1, over half a turn.

    References:
        Bruna and Mallat (2013), Invariant scattering convolution networks, IEEE TPAMI 35(8), section 2.
        Andreux et al. (2020), Kymatio, JMLR 21(60).
    """

    grid: tuple[int, int]
    scales: int
    angles: int

    def wavelets(self, scale: int) -> NDArray[np.complex128]:
        """ψ_{j,θ} for all angles in space, origin at [0, 0], shape (L, M, N)."""
        turns = (self.angles // 2 - 1 - np.arange(self.angles)) * math.pi / self.angles
        return np.stack([self._wavelet(scale, turn) for turn in turns])

    def spectra(self, scale: int) -> NDArray[np.float64]:
        """The Fourier transforms of ψ_{j,θ}, which are real, shape (L, M, N)."""
        return np.fft.fft2(self.wavelets(scale)).real

    def averaging(self, axis: int, resolution: int) -> NDArray[np.float64]:
        """φ_J * · along one axis, kept at every 2^J-th pixel and without the padding's outermost points.

        Args:
            axis: 0 or 1.
            resolution: r: what comes in holds every 2^r-th pixel.

        Returns:
            A matrix of shape (M/2^J - 2, M/2^r).
        """
        size, step, coarse = self.grid[axis], 2**resolution, 2**self.scales
        kernel = gaussian(size, 0.8 * 2 ** (self.scales - 1))
        to = np.arange(1, size // coarse - 1) * coarse
        lag = (to[:, None] - np.arange(0, size, step)[None, :]) % size
        weights: NDArray[np.float64] = step * kernel[lag]
        return weights

    def _wavelet(self, scale: int, turn: float) -> NDArray[np.complex128]:
        return morlet(
            self.grid,
            sigma=0.8 * 2**scale,
            turn=turn,
            frequency=0.75 * math.pi / 2**scale,
            slant=4 / self.angles,
        )


def gaussian(size: int, sigma: float) -> NDArray[np.float64]:
    """A normal density of std `sigma` at 0 … size-1, summed over all periods of length `size`."""
    points = np.arange(size) + size * _periods(size, sigma)[:, None]
    density: NDArray[np.float64] = np.exp(-(points**2) / (2 * sigma**2)).sum(axis=0)
    return density / math.sqrt(2 * math.pi * sigma**2)


def morlet(
    grid: tuple[int, int], *, sigma: float, turn: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """A wave of `frequency` (radians a pixel) under an elongated Gaussian, less a Gaussian: its mean is zero.

    Args:
        grid: (M, N), the period in pixels.
        sigma: Std along the wave, in pixels; across it is sigma/slant.
        turn: Direction of the wave, in radians from the first axis.
        frequency: ξ.
        slant: Ratio of the two widths.

    Returns:
        Values in space, origin at [0, 0], shape (M, N).
    """
    envelope, wave = np.zeros(grid), np.zeros(grid, dtype=np.complex128)
    for rows in _periods(grid[0], sigma / min(slant, 1)):
        for columns in _periods(grid[1], sigma / min(slant, 1)):
            x = np.arange(grid[0])[:, None] + rows * grid[0]
            y = np.arange(grid[1])[None, :] + columns * grid[1]
            along = x * math.cos(turn) + y * math.sin(turn)
            across = y * math.cos(turn) - x * math.sin(turn)
            here = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
            envelope += here
            wave += here * np.exp(1j * frequency * along)
    total: NDArray[np.complex128] = (wave - wave.sum() / envelope.sum() * envelope) * (
        slant / (2 * math.pi * sigma**2)
    )
    return total


def _periods(size: int, sigma: float) -> NDArray[np.int64]:
    reach = math.ceil(_TAILS * sigma / size) + 1
    return np.arange(-reach, reach + 1)
