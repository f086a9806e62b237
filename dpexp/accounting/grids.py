"""How far the grid of a discretized pair must reach, and how fine it must be.

Any grid gives a valid bound (`atoms.py`); these choices only make it a tight one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpexp.accounting.atoms import (
    Atoms,
    Grid,
    fixed_size_atoms,
    opposed_atoms,
    poisson_add_atoms,
    poisson_remove_atoms,
)
from dpexp.accounting.moments import Array
from dpexp.accounting.pairs import FixedSizePair, OpposedPair, PoissonPair

__all__ = ["SMALLEST_SIGMA", "Direction", "SampledPair", "directions_of"]

SMALLEST_SIGMA = 0.02  # below it a grid takes more than ~20,000 points
_FINE_LOSS = 0.15  # largest order × distance of neighboring losses
_IDLE = -45.0  # log of the mass that may be rounded to a larger, but not infinite, loss
_COARSE = 200  # points for finding the contour

SampledPair = PoissonPair | OpposedPair | FixedSizePair


@dataclass(frozen=True, kw_only=True)
class Direction:
    """A pair, one way round: how to make its atoms, and where its mass is.

    Attributes:
        pair: The pair.
        make: Atoms from q and a grid.
        losses_rise: Whether the loss rises with z.
    """

    pair: SampledPair
    make: Callable[[float, Grid], Atoms]
    losses_rise: bool

    def coarse(self, log_share: float) -> Atoms:
        """Atoms good enough to find the contour with."""
        low, high = self.reach(log_share)
        return self.make(self.pair.q, Grid(np.linspace(low, high, _COARSE), self.pair.sigma))

    def fine(self, log_share: float, c: float, fineness: float) -> Atoms:
        """Atoms fine enough for orders near c.

        Args:
            log_share: log of the P-mass that may be charged as an infinite loss.
            c: Real part of the contour.
            fineness: Distance of grid points ÷ min(σ, σ²); adds about 0.09 · fineness² to ε, relatively.
        """
        low, high = self.reach(log_share)
        points = np.linspace(low, high, 2000)
        density = 1 / self._spacing(points, c, fineness)
        total = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(points))])
        count = int(np.ceil(total[-1])) + 2
        z = np.interp(np.linspace(0, total[-1], count), total, points)
        return self.make(self.pair.q, Grid(z, self.pair.sigma))

    def _spacing(self, z: Array, c: float, fineness: float) -> Array:
        q, s = self.pair.q, self.pair.sigma
        x = (2 * np.abs(z) - 1) / 2 / s / s
        log_r = np.logaddexp(np.log1p(-q), np.log(q) + x)
        share = np.maximum(np.exp(np.log(q) + x - log_r), 1e-200)  # d log R / dx
        by_loss = _FINE_LOSS * s * s / ((c + 1) * share)
        by_rule = s * s / (np.abs(z) + 1)  # the eight-point rule is exact to rounding up to here
        widest = fineness * min(s, s * s)
        spacing: Array = np.minimum(np.minimum(widest, np.maximum(by_loss, widest / 4)), by_rule)
        return spacing

    def reach(self, log_share: float) -> tuple[float, float]:
        """Ends of a grid beyond which at most this share of the P-mass has a large loss."""
        q, s = self.pair.q, self.pair.sigma
        base, shifted = s * _deviations(log_share), 1 + s * _deviations(log_share - np.log(q))
        idle = s * _deviations(max(log_share, _IDLE))  # the side of small losses is charged no infinite loss
        match self.pair:
            case PoissonPair():
                return (-idle, max(idle, shifted)) if self.losses_rise else (-base, 1 + idle)
            case OpposedPair():
                return -1 - idle, max(1 + idle, shifted)
            case FixedSizePair():
                return 0.5, max(base, shifted)


def _deviations(log_share: float) -> float:
    """An x >= 1 with Φ(-x) <= share, by Φ(-x) <= exp(-x²/2)/2."""
    return max(1.0, float(np.sqrt(2 * max(-log_share - np.log(2), 0.0))))


def directions_of(pair: SampledPair) -> tuple[Direction, ...]:
    """The ways round in which a pair must be composed."""
    match pair:
        case PoissonPair():
            return (
                Direction(pair=pair, make=poisson_remove_atoms, losses_rise=True),
                Direction(pair=pair, make=poisson_add_atoms, losses_rise=False),
            )
        case OpposedPair():
            return (Direction(pair=pair, make=opposed_atoms, losses_rise=True),)
        case FixedSizePair():
            return (Direction(pair=pair, make=fixed_size_atoms, losses_rise=True),)
