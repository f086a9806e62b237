"""Discrete pairs with finitely many privacy losses that dominate a given pair (connect-the-dots).

Write Y = dQ/dP at an outcome drawn from P; the loss is -log Y, and δ(ε) = E_P[(1 - e^ε Y)₊] is the
expectation of a convex, decreasing function of Y. Between two neighboring grid points, spreading every Y to
the two ends with the same mean can only raise that expectation (Jensen), and so can lowering Y, which is what
happens to the tails: to the last grid point, or to Y = 0, the infinite loss. Both survive multiplication by
the Y of other releases, and thus composition: docs/theory/pld.md, section 1. The idea is the connect-the-dots
discretization of Doroshenko et al. (2022, arXiv 2207.04380v1); since we do not need equal spacing, the grid
is chosen in the space of the noise, and no mass is ever a difference of two cumulative distributions.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import erf, log_ndtr

from dpexp.accounting.moments import Array

__all__ = [
    "Atoms",
    "Grid",
    "fixed_size_atoms",
    "log_hat_masses",
    "log_ratio",
    "opposed_atoms",
    "poisson_add_atoms",
    "poisson_remove_atoms",
]

_U = 2.0**-53
_POINTS = 8  # Gauss-Legendre points per interval; remainder below 1e-17 relative for steps <= σ/4


@dataclass(frozen=True, eq=False)
class Atoms:
    """A discrete pair by its losses under P.

    Attributes:
        log_mass: log P-mass of each atom, shape (J,).
        loss: Its privacy loss, shape (J,).
        mass_error: Bound on the relative error of the masses, shape (J,).
        loss_error: Bound on the absolute error of the losses, shape (J,).
        log_infinite: log of (a bound on) the P-mass of the infinite loss.
    """

    log_mass: Array
    loss: Array
    mass_error: Array
    loss_error: Array
    log_infinite: float


@dataclass(frozen=True, eq=False)
class Grid:
    """Points z_0 < … < z_J in the space of the noise, at most σ/4 apart."""

    z: Array
    sigma: float


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    return (nodes + 1) / 2, weights / 2


def log_hat_masses(grid: Grid) -> Array:
    """The log of the N(0, σ²)-mass that each grid point gets, tails excluded.

    In an interval [z_j, z_{j+1}] the share of the right end is the one that keeps the mean of
    E(z) = exp((2z-1)/(2σ²)): (E - E_j)/(E_{j+1} - E_j) = expm1((z - z_j)/σ²)/expm1(Δ/σ²). No term is
    negative.
    """
    z, s = grid.z, grid.sigma
    nodes, weights = _gauss_legendre()
    step = np.diff(z)[:, np.newaxis]
    offset, away = step * nodes, step * (nodes - 0.5)
    middle = ((z[:-1] + z[1:]) / 2)[:, np.newaxis]
    density = np.exp(-away * (2 * middle + away) / s / s / 2) * (weights * step)
    log_middle = -((middle[:, 0] / s) ** 2) / 2 - np.log(s) - np.log(2 * np.pi) / 2
    whole = -np.expm1(-step / s / s)
    right = np.exp((offset - step) / s / s) * -np.expm1(-offset / s / s) / whole  # expm1/expm1, no overflow
    left = -np.expm1((offset - step) / s / s) / whole
    return _join(log_middle, density, left, right)


def _join(log_scale: Array, density: Array, left: Array, right: Array) -> Array:
    with np.errstate(divide="ignore"):
        to_left = log_scale + np.log((density * left).sum(axis=1))
        to_right = log_scale + np.log((density * right).sum(axis=1))
    empty = np.array([-np.inf])
    joined: Array = np.logaddexp(np.concatenate([to_left, empty]), np.concatenate([empty, to_right]))
    return joined


def _log_masses_with_tails(grid: Grid) -> Array:
    log_mass = log_hat_masses(grid)
    log_mass[0] = np.logaddexp(log_mass[0], log_ndtr(grid.z[0] / grid.sigma))
    log_mass[-1] = np.logaddexp(log_mass[-1], log_ndtr(-grid.z[-1] / grid.sigma))
    return log_mass


def log_ratio(q: float, grid: Grid) -> tuple[Array, Array]:
    """The log of R = 1 - q + qE on the grid and a bound on its absolute error."""
    x = (2 * grid.z - 1) / (2 * grid.sigma) / grid.sigma
    with np.errstate(over="ignore", divide="ignore"):
        small = np.log1p(q * np.expm1(np.minimum(x, 700.0)))
    general = np.logaddexp(np.log1p(-q), np.log(q) + x)
    near = np.abs(small) < 0.5
    loss = np.where(near, small, general)
    share = np.exp(np.minimum(np.log(q) + x - loss, 0.0))  # qE/R, how much an error of x matters
    sloppy = np.where(near, 0.0, 4 + np.abs(x) + abs(np.log(q)) + abs(np.log1p(-q)))
    return loss, _U * (16 * np.abs(x) * share + 32 * np.abs(loss) + 8 * sloppy)


def _log_tail(q: float, grid: Grid) -> float:
    """The log of q N(1, σ²)-mass beyond the grid."""
    return float(np.log(q) + log_ndtr((1 - grid.z[-1]) / grid.sigma))


def _mass_error(exponents: Array) -> Array:
    # 64u for the eight-point rule and its nodes; a few u for each unit of the exponents that exp() has seen
    return _U * (96 + 8 * np.abs(exponents))


def poisson_remove_atoms(q: float, grid: Grid) -> Atoms:
    """Dominates P = μ = (1-q)N(0, σ²) + qN(1, σ²) against Q = N(0, σ²)."""
    loss, loss_error = log_ratio(q, grid)
    log_hat = _log_masses_with_tails(grid)
    mass_error = _mass_error(np.abs(log_hat) + np.abs(loss)) + loss_error
    return Atoms(log_hat + loss, loss, mass_error, loss_error, _log_tail(q, grid))


def poisson_add_atoms(q: float, grid: Grid) -> Atoms:
    """Dominates P = N(0, σ²) against Q = μ."""
    loss, loss_error = log_ratio(q, grid)
    log_mass = _log_masses_with_tails(grid)
    log_infinite = float(log_ndtr(grid.z[0] / grid.sigma))
    return Atoms(log_mass, -loss, _mass_error(log_mass), loss_error, log_infinite)


def fixed_size_atoms(q: float, grid: Grid) -> Atoms:
    """Dominates `pairs.FixedSizePair`; the grid begins at 1/2.

    Positive losses are those of (μ, μ₀) on z > 1/2 and negative ones those of (μ₀, μ) there; the rest of the
    mass, (1-q)(Φ(1/(2σ)) - Φ(-1/(2σ))), has loss 0.
    """
    loss, loss_error = log_ratio(q, grid)
    log_mass = log_hat_masses(grid)
    log_mass[-1] = np.logaddexp(log_mass[-1], log_ndtr(-grid.z[-1] / grid.sigma))
    rest = np.log1p(-q) + np.log(erf(1 / (2 * np.sqrt(2.0) * grid.sigma)))
    masses = np.concatenate([log_mass + loss, [rest], log_mass])
    sizes = np.concatenate([np.abs(log_mass) + np.abs(loss), [abs(rest)], np.abs(log_mass)])
    losses = np.concatenate([loss, [0.0], -loss])
    loss_errors = np.concatenate([loss_error, [0.0], loss_error])
    return Atoms(masses, losses, _mass_error(sizes) + loss_errors, loss_errors, _log_tail(q, grid))


def opposed_atoms(q: float, grid: Grid) -> Atoms:
    """Dominates `pairs.OpposedPair`: P = A·N(0, σ²) against Q = B·N(0, σ²), A = R(z), B = R(-z).

    The mean kept in each interval is that of Y = B/A. With D(x, y) = B(x)A(y) - B(y)A(x) the share of the
    right end is D(z_j, z)/D(z_j, z_{j+1}) · A_{j+1}/A, and the factor A of the density of P cancels.
    """
    a, error_a = log_ratio(q, grid)
    b, error_b = log_ratio(q, Grid(-grid.z, grid.sigma))
    left, right = _log_opposed_shares(q, grid)
    log_mass = _log_opposed_masses(q, grid, left + a[:-1, np.newaxis], right + a[1:, np.newaxis])
    loss_error = error_a + error_b
    exponents = np.abs(grid.z) / grid.sigma**2 + 1 / grid.sigma**2 + 2 * abs(np.log(q)) + abs(np.log1p(-q))
    mass_error = _mass_error(np.abs(log_mass) + np.abs(a)) + 2 * loss_error + 16 * _U * exponents
    return Atoms(log_mass, a - b, mass_error, loss_error, _log_tail(q, grid))


def _log_opposed_shares(q: float, grid: Grid) -> tuple[Array, Array]:
    """The log of D(z, z_{j+1})/D(z_j, z_{j+1}) and log D(z_j, z)/D(z_j, z_{j+1}) at the quadrature points."""
    nodes, _ = _gauss_legendre()
    step = np.diff(grid.z)[:, np.newaxis]
    start, offset = grid.z[:-1, np.newaxis], step * nodes
    whole = _log_cross(q, grid.sigma, start, step)
    left = _log_cross(q, grid.sigma, start + offset, step - offset) - whole
    return left, _log_cross(q, grid.sigma, start, offset) - whole


def _log_cross(q: float, sigma: float, x: Array, distance: Array) -> Array:
    """The log of D(x, x + distance), a sum of three positive terms.

    With h = distance/σ², α = E(x), β = E(-x) it is
    D = q(1-q)[α(e^h - 1) + β(1 - e^(-h))] + q² e^(-1/σ²)(e^h - e^(-h)).
    """
    h = distance / sigma**2
    log_alpha, log_beta = (2 * x - 1) / 2 / sigma**2, (-2 * x - 1) / 2 / sigma**2
    log_fall = np.log(-np.expm1(-h))
    once = np.log(q) + np.log1p(-q) + log_fall + np.logaddexp(log_alpha + h, log_beta)
    cross: Array = np.logaddexp(once, 2 * np.log(q) - 1 / sigma**2 + h + np.log(-np.expm1(-2 * h)))
    return cross


def _log_opposed_masses(q: float, grid: Grid, left: Array, right: Array) -> Array:
    z, s = grid.z, grid.sigma
    nodes, weights = _gauss_legendre()
    step = np.diff(z)[:, np.newaxis]
    away = step * (nodes - 0.5)
    middle = ((z[:-1] + z[1:]) / 2)[:, np.newaxis]
    density = np.exp(-away * (2 * middle + away) / s / s / 2) * (weights * step)
    log_middle = -((middle[:, 0] / s) ** 2) / 2 - np.log(s) - np.log(2 * np.pi) / 2
    top = np.maximum(left.max(axis=1), right.max(axis=1))
    shares = (np.exp(left - top[:, np.newaxis]), np.exp(right - top[:, np.newaxis]))
    log_mass = _join(log_middle + top, density, *shares)
    at_rest, at_one = np.log1p(-q), np.log(q)  # log shares of N(0, σ²) in P and Q, and of N(±1, σ²)
    low = np.logaddexp(at_rest + log_ndtr(z[0] / s), at_one + log_ndtr((z[0] - 1) / s))  # P(left tail)
    high = np.logaddexp(at_rest + log_ndtr(-z[-1] / s), at_one + log_ndtr(-(z[-1] + 1) / s))  # Q(right tail)
    log_mass[0] = np.logaddexp(log_mass[0], low)
    ratio = log_ratio(q, Grid(z[-1:], s))[0] - log_ratio(q, Grid(-z[-1:], s))[0]
    log_mass[-1] = np.logaddexp(log_mass[-1], high + float(ratio[0]))  # Q(tail)/Y_J
    return log_mass
