"""Privacy losses of a pair at Gauss-Legendre points, for transforms in floating point."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from dpexp.accounting.atoms import (
    Atoms,
    Grid,
    fixed_size_atoms,
    log_ratio,
    opposed_atoms,
    poisson_add_atoms,
    poisson_remove_atoms,
)
from dpexp.accounting.grids import Direction
from dpexp.accounting.inversion import characteristic
from dpexp.accounting.moments import Array

__all__ = ["Losses", "quadrature"]

_POINTS = 16
_SMALL = 0.5
_AFFORDABLE = 100_000
_MOST_PANELS = 600


@dataclass(frozen=True, eq=False)
class Losses:
    """E_P[f(L)] = Σ exp(log_mass) f(loss) for smooth f, and a few points for a continuum; both (J,)."""

    log_mass: Array
    loss: Array

    def log_transform_on(self, c: float, step: float, k: Array) -> NDArray[np.complex128]:
        """The log of E_P[e^(sL)] at s = c + i·step·k, up to 2πi.

        Short lines are summed without cancellation; long ones (k = 0, 1, 2, …), which no large number of
        releases needs, fast.
        """
        if len(k) * len(self.loss) <= _AFFORDABLE:
            return self.log_transform(np.asarray(c + 1j * step * k, dtype=np.complex128))
        exponents = self.log_mass + c * self.loss
        top = float(exponents.max())
        block = int(np.ceil(np.sqrt(len(k))))
        sums = characteristic(np.exp(exponents - top), step * self.loss, block)[: len(k)]
        return np.asarray(top + np.log(sums), dtype=np.complex128)

    def log_transform(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """The log of E_P[e^(sL)], shape (N,).

        As E_P[e^(-L)] = 1, it is log1p(Σ p [e^(sL) - 1 - s(1 - e^(-L))]): of second order in L, so that
        nothing cancels for the tiny losses of small q.
        """
        column: NDArray[np.complex128] = s[:, np.newaxis]
        top = float((self.log_mass + float(s.real.max()) * self.loss).max())
        if top > 1:  # then the transform is no small number
            sums = np.exp(self.log_mass + column * self.loss - top).sum(axis=1)
            sums[np.abs(sums) < 1e-200] = 1e-200
            return np.asarray(top + np.log(sums), dtype=np.complex128)
        terms = np.where(self._small(s), self._series(column), self._direct(column)).sum(axis=1)
        real, imaginary = np.real(terms), np.imag(terms)
        square = np.maximum(2 * real + real * real + imaginary * imaginary, -1 + 1e-16)
        modulus = 0.5 * np.log1p(square)
        return np.asarray(modulus + 1j * np.arctan2(imaginary, 1 + real), dtype=np.complex128)

    def _small(self, s: NDArray[np.complex128]) -> NDArray[np.bool_]:
        x = np.abs(s)[:, np.newaxis] * np.abs(self.loss)
        result: NDArray[np.bool_] = (x < _SMALL) & (np.abs(self.loss) < _SMALL)
        return result

    def _direct(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        mass = np.exp(self.log_mass)
        under_q = np.exp(self.log_mass - self.loss)
        result: NDArray[np.complex128] = np.exp(self.log_mass + s * self.loss) - mass - s * (mass - under_q)
        return result

    def _series(self, s: NDArray[np.complex128]) -> NDArray[np.complex128]:
        loss = np.clip(self.loss, -_SMALL, _SMALL)
        x = np.where(np.abs(s * loss) < _SMALL, s * loss, 0)
        result: NDArray[np.complex128] = np.exp(self.log_mass) * (_beyond(x) + s * _beyond(-loss))
        return result


def _beyond(x: NDArray[np.generic]) -> NDArray[np.complex128]:
    """e^x - 1 - x for |x| < 1/2, by its series."""
    total = np.zeros_like(x)
    for k in range(18, 1, -1):  # x/2 (1 + x/3 (1 + …)), times x at the end
        total = (1 + total) * x / k
    return np.asarray(total * x)


_Measure = Callable[[float, Grid, Array], tuple[Array, Array]]


def quadrature(direction: Direction, log_share: float, c: float, t: float) -> Losses:
    """Losses such that transforms at c + i·[0, t] are good to rounding.

    Args:
        direction: A pair, one way round.
        log_share: log of the P-mass of large losses that may be dropped.
        c: Real part of the line.
        t: Largest imaginary part.
    """
    q, s = direction.pair.q, direction.pair.sigma
    low, high = direction.reach(log_share)
    points = np.linspace(low, high, 1000)
    x = (2 * np.abs(points) - 1) / 2 / s / s
    share = np.exp(np.log(q) + x - np.logaddexp(np.log1p(-q), np.log(q) + x))
    width = np.minimum(min(s, s * s), 4 * s * s / (np.abs(points) + 1))
    width = np.minimum(width, 6 * s * s / ((c + 1 + t) * np.maximum(share, 1e-200)))
    total = np.concatenate([[0.0], np.cumsum((1 / width[1:] + 1 / width[:-1]) / 2 * np.diff(points))])
    count = min(int(np.ceil(total[-1])) + 1, _MOST_PANELS)
    ends = np.interp(np.linspace(0, total[-1], count + 1), total, points)
    nodes, weights = _rule()
    step = np.diff(ends)[:, np.newaxis]
    z = (ends[:-1, np.newaxis] + step * nodes).ravel()
    log_weight = np.log((step * weights).ravel()) - (z / s) ** 2 / 2 - np.log(s) - np.log(2 * np.pi) / 2
    return Losses(*_MEASURES[direction.make](q, Grid(z, s), log_weight))


@lru_cache(maxsize=1)
def _rule() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    return (nodes + 1) / 2, weights / 2


def _remove(q: float, grid: Grid, log_weight: Array) -> tuple[Array, Array]:
    loss, _ = log_ratio(q, grid)
    return log_weight + loss, loss


def _add(q: float, grid: Grid, log_weight: Array) -> tuple[Array, Array]:
    loss, _ = log_ratio(q, grid)
    return log_weight, -loss


def _opposed(q: float, grid: Grid, log_weight: Array) -> tuple[Array, Array]:
    a, b = log_ratio(q, grid)[0], log_ratio(q, Grid(-grid.z, grid.sigma))[0]
    return log_weight + a, a - b


def _fixed_size(q: float, grid: Grid, log_weight: Array) -> tuple[Array, Array]:
    loss, _ = log_ratio(q, grid)
    rest = np.log1p(-q) + np.log(erf(1 / (2 * np.sqrt(2.0) * grid.sigma)))  # at loss 0: see fixed_size_atoms
    masses = np.concatenate([log_weight + loss, log_weight, [rest]])
    return masses, np.concatenate([loss, -loss, [0.0]])


_MEASURES: Mapping[Callable[[float, Grid], Atoms], _Measure] = {
    poisson_remove_atoms: _remove,
    poisson_add_atoms: _add,
    opposed_atoms: _opposed,
    fixed_size_atoms: _fixed_size,
}
