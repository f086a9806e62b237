"""Log moments of one epoch of balls-and-bins lots: each row enters one of B lots, uniformly.

The pair is P = (1/B) Σ_t N(e_t, σ²I) against Q = N(0, σ²I), with W = dP/dQ = (1/B) Σ_t w_t, and w_t
independent copies of E = exp((2z-1)/(2σ²)), z ~ N(0, σ²). One direction needs E_Q[W^(λ+1)], the other
E_Q[W^(-λ)]; α is the larger. Proofs: docs/theory/moments.md, section 6.
"""

import numpy as np
from scipy.special import gammaln, loggamma, logsumexp

from dpexp.accounting import moments
from dpexp.accounting.atoms import Grid, log_hat_masses
from dpexp.accounting.moments import Array

__all__ = ["add_log_moments", "balls_and_bins_log_moments", "remove_log_moments"]

_LAST_EXACT = 128
_STEP = 0.04
_LAST_LAPLACE = 256
_ROUNDING = 1e-11


def balls_and_bins_log_moments(lots: int, sigma: float, orders: tuple[int, ...]) -> Array:
    """α(λ) of one epoch, a proven upper bound for either direction.

    Args:
        lots: B >= 2.
        sigma: σ > 0.
        orders: Integer λ >= 1, increasing.

    Returns:
        α, shape (K,).
    """
    return np.maximum(remove_log_moments(lots, sigma, orders), add_log_moments(lots, sigma, orders))


def remove_log_moments(lots: int, sigma: float, orders: tuple[int, ...]) -> Array:
    """The log of E_Q[W^(λ+1)]: exact up to λ = 128, the Poisson bound with q = 1/B above.

    E_Q[W^a] = E[Π_t exp(k_t(k_t - 1)/(2σ²))] with k multinomial(a; 1/B, …, 1/B). Multinomial counts are
    negatively associated (Joag-Dev and Proschan 1983) and the factors rise with k_t, so independent
    binomial counts of the same law, which is Poisson sampling, give at least as much.
    """
    lambdas = np.asarray(orders, dtype=np.float64)
    one = moments.round_up(moments.log_moments(1 / lots, sigma, orders), lambdas, 1 / lots, sigma)
    bound = lots * one * (1 + 1e-14)
    few = lambdas <= _LAST_EXACT
    if few.any():
        exact = _exact_log_moments(lots, sigma, lambdas[few] + 1)
        bound[few] = np.minimum(bound[few], exact * (1 + _ROUNDING))
    return bound


def _exact_log_moments(lots: int, sigma: float, a: Array) -> Array:
    """The log of E_Q[W^a] without cancellation.

    E_Q[W^a] = a!/B^a [x^a] c(x)^B, c = Σ_k x^k exp(e_k)/k! = e^x + d(x), d_k = (exp(e_k) - 1)/k!, so that
    E_Q[W^a] - 1 = a!/B^a Σ_{j>=1} C(B, j) Σ_k [x^k]d^j · (B-j)^(a-k)/(a-k)!: no term is negative.
    """
    degree = int(a[-1])
    k = np.arange(degree + 1.0)
    exponent = k * (k - 1) / 2 / sigma / sigma
    with np.errstate(divide="ignore"):
        log_d = moments.log_expm1(exponent) - gammaln(k + 1)
    log_d[:2] = -np.inf
    log_power, log_x = np.where(k == 0, 0.0, -np.inf), np.full(len(a), -np.inf)
    for j in range(1, min(lots, degree // 2) + 1):
        log_power = _convolved(log_power, log_d)
        ways = gammaln(lots + 1) - gammaln(j + 1) - gammaln(lots - j + 1)
        log_x = np.logaddexp(log_x, ways + _with_exponential(log_power, lots - j, a))
    log_x += gammaln(a + 1) - a * np.log(lots)
    return np.asarray(np.logaddexp(0.0, log_x))


def _convolved(x: Array, y: Array) -> Array:
    size = len(x)
    table = np.full((size, size), -np.inf)
    for shift in range(2, size):
        table[shift:, shift] = x[: size - shift] + y[shift]
    return _logsumexp_rows(table)


def _with_exponential(log_power: Array, rest: int, a: Array) -> Array:
    """The log of [x^a] of the series times exp(rest · x)."""
    k = np.arange(len(log_power), dtype=np.float64)
    left = a[:, np.newaxis] - k
    more = np.maximum(left, 0.0)
    log_rest = np.log(rest) if rest > 0 else -1e300
    terms = np.where(left >= 0, log_power + more * log_rest - gammaln(more + 1), -np.inf)
    return _logsumexp_rows(terms)


def _logsumexp_rows(table: Array) -> Array:
    top = table.max(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        total: Array = top + np.log(np.exp(table - top[:, np.newaxis]).sum(axis=1))
    return np.asarray(np.where(np.isneginf(top), top, total))


def add_log_moments(lots: int, sigma: float, orders: tuple[int, ...]) -> Array:
    """An upper bound on log E_Q[W^(-λ)], the smaller of two.

    By the inequality of the means, W^(-λ) <= Π_t w_t^(-λ/B): λ(λ/B + 1)/(2σ²). The other is `_laplace` at
    some orders, and the chord between them at the rest: log E_Q[W^(-λ)] is convex in λ, and 0 at 0.
    """
    lambdas = np.asarray(orders, dtype=np.float64)
    bound: Array = lambdas * (lambdas / lots + 1) / 2 / sigma / sigma * (1 + 1e-14)
    last = min(_LAST_LAPLACE, int(30 * sigma**2))
    knots = np.unique(np.rint(np.geomspace(1, max(last, 1), 40)))
    if last < 1 or knots[-1] > last:
        return bound
    at_knots = np.array([0.0, *_laplace(lots, sigma, knots)])
    chord = np.interp(lambdas, np.array([0.0, *knots]), at_knots) * (1 + 1e-14)
    smaller: Array = np.minimum(bound, chord)
    return np.where(lambdas <= last, smaller, bound)


def _laplace(lots: int, sigma: float, lambdas: Array) -> Array:
    """The log of E_Q[W^(-λ)] from above, by w^(-λ) = Γ(λ)⁻¹ ∫ exp(λu - e^u w) du.

    The trapezoidal sum with step h is w^(-λ)(1 + r(w)), |r| <= 2 Σ_k |Γ(λ + 2πik/h)|/Γ(λ) for every w > 0
    (Poisson summation; Beylkin and Monzón 2010), so the mean of the sum, E_Q[exp(-e^u W)] = ψ(e^u/B)^B in
    place of exp(-e^u w), bounds from above after division by 1 - |r|. ψ is that of the chord discretization,
    an upper bound since exp(-yE) is convex and falls in E.
    """
    right = 2 * np.log(2 * lambdas[-1]) + (2 * lambdas[-1] + 1) / sigma**2 + 45
    u = np.arange(-45.0, right, _STEP)
    log_transform = lots * _log_psi(np.exp(u) / lots, sigma)
    terms = lambdas[:, np.newaxis] * u + log_transform
    total = logsumexp(terms, axis=1) + np.log(_STEP) - gammaln(lambdas)
    ripple = 4 * np.exp(loggamma(lambdas + 2j * np.pi / _STEP).real - gammaln(lambdas))
    rest = 1e-15 * lambdas + 3e-13 * lots  # the ends of the sum that are left out; rounding of log ψ, B times
    return np.asarray(np.maximum(total, 0.0) - np.log1p(-ripple) + rest + 1e-12 * (1 + lambdas))


def _log_psi(y: Array, sigma: float) -> Array:
    """The log of Σ_j n_j exp(-y E_j) >= E[exp(-yE)], n_j the masses of the chord discretization."""
    width = min(sigma, sigma**2)
    z = np.arange(-9 * sigma, 1 + 9 * sigma, min(0.02 * width, sigma**2 / (2 + 9 * sigma)))
    log_mass = log_hat_masses(Grid(z, sigma))
    level = np.exp((2 * z - 1) / 2 / sigma**2)
    level, log_mass = np.append(0.0, level), np.append(np.log(1e-18), log_mass)
    log_mass[-1] = np.logaddexp(log_mass[-1], np.log(1e-18))
    blocks = [logsumexp(log_mass - part[:, np.newaxis] * level, axis=1) for part in np.array_split(y, 32)]
    return np.asarray(np.concatenate(blocks))
