"""Values and noise added on a lattice, so that low-order bits carry nothing. See docs/theory/noise.md."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["LATTICE", "noised", "to_lattice"]

LATTICE = 2.0**-30
"""Spacing of secure noise, in units of its standard deviation."""


def noised(
    values: NDArray[np.float64],
    draws: NDArray[np.float64],
    *,
    noise_std: float,
    noise_multiplier: float,
    spacing: float,
) -> NDArray[np.float64]:
    """Values + noise_std · draws, in float64.

    On a lattice (spacing s > 0) values are first rounded to multiples of s·std. Between neighbors the rounded
    sums differ by up to √d·s·std more, so the std is raised to σ'C with 1/σ' = 1/σ - √d·s: the effective
    multiplier stays σ.

    Args:
        values: What is released, shape (d,).
        draws: As many standard normal draws; overwritten.
        noise_std: σC >= 0.
        noise_multiplier: σ >= 0.
        spacing: That of the noise the draws come from.
    """
    if spacing == 0:
        draws *= noise_std
        draws += values
        return draws
    raised = noise_std / (1 - noise_multiplier * np.sqrt(values.size) * spacing)
    draws += to_lattice(values / raised)
    draws *= raised
    return draws


def to_lattice(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounds in place to the nearest multiple of `LATTICE`, zero unsigned; shape kept.

    Sums of such multiples are exact in float64 as long as they stay below 2²³.
    """
    values *= 1 / LATTICE
    np.rint(values, out=values)
    values += 0.0  # -0.0 would tell the sign of what was rounded away
    values *= LATTICE
    return values
