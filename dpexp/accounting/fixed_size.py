"""Log moments of lots of fixed size, drawn without replacement, under replace-one.

For the pair of `pairs.FixedSizePair`, with R = 1-q+qE, E = exp((2z-1)/(2σ²)), v = R-1, a = λ+1 and
g_p(v) = (1+v)^p - 1 - pv (>= 0 for p >= 1 and for p <= 0):

    exp α(λ) = 1 + ∫_{z>1/2} N(z; 0, σ²)[g_a(v) + g_{-λ}(v)] dz
             = E₂(λ) - ∫_{z<1/2} N g_a + ∫_{z>1/2} N g_{-λ},

where E₂ is the moment of the Poisson pair, a sum in closed form, and both integrands are tame for any λ:
0 < R <= 1 in the first, R >= 1 in the second. Derivation and error bound: docs/theory/moments.md, section 5.
"""

import numpy as np

from dpexp.accounting import moments
from dpexp.accounting.moments import Array

__all__ = ["fixed_size_log_moments"]

_U = 2.0**-53
_POINTS = 16
_REACH = 20.0  # deviations beyond 1 that are kept; the rest is below 1e-80 of the integrals
_LITTLE_NOISE = 0.1


def fixed_size_log_moments(q: float, sigma: float, orders: tuple[int, ...]) -> Array:
    """α(λ), a proven upper bound.

    Args:
        q: m/n in (0, 1).
        sigma: σ > 0, noise std ÷ replace-one sensitivity.
        orders: Integer λ >= 1, increasing.

    Returns:
        α, shape (K,); good to about 1e-13 relative.
    """
    lambdas = np.asarray(orders, dtype=np.float64)
    poisson = moments.round_up(moments.log_moments(q, sigma, orders), lambdas, q, sigma)
    correction = np.array([_correction(q, sigma, order) for order in lambdas])
    with np.errstate(over="ignore"):
        excess = np.expm1(np.minimum(poisson, 700.0))
        total = np.log1p(np.maximum(excess + correction, 0.0))
    tame = poisson < 600  # above, the correction, at most λq(E-1), is lost in the rounding
    bound: Array = np.where(tame, total, poisson + np.log1p(1e-12)) * (1 + 1e-13)
    return bound


def _correction(q: float, sigma: float, order: float) -> float:
    """∫_{z>1/2} N g_{-λ} - ∫_{z<1/2} N g_a, rounded up; at most λq, as g_{-λ}(v) <= λv and g_a >= 0."""
    if sigma < _LITTLE_NOISE:
        return q * order
    above, above_error = _half(q, sigma, -order, 1.0)
    below, below_error = _half(q, sigma, order + 1, -1.0)
    return above - below + above_error + below_error


def _half(q: float, sigma: float, p: float, side: float) -> tuple[float, float]:
    """∫ N(z; 0, σ²) g_p(v) dz over side·(z - 1/2) > 0, and a bound on the error.

    The panels double in size away from z = 1/2, so that the function is analytic and bounded on the ellipse
    around each that the error bound of Gauss-Legendre quadrature (Trefethen 2008, Theorem 4.5) asks for.
    """
    ends = _panels(q, sigma, abs(p))
    nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(ends) / 2
    distance = ends[:-1, np.newaxis] + half[:, np.newaxis] * (nodes + 1)
    z = 0.5 + side * distance
    density = np.exp(-((z / sigma) ** 2) / 2) / sigma / np.sqrt(2 * np.pi)
    with np.errstate(over="ignore"):
        v = q * np.expm1(np.minimum(side * distance / sigma**2, 700.0))
    values = density * _g(p, v) * (half[:, np.newaxis] * weights)
    total = float(values.sum())
    return total, 256 * _U * total * (1 + abs(np.log(q)) / 8)


def _panels(q: float, sigma: float, order: float) -> Array:
    """Distances from z = 1/2: a first panel on which all is smooth, then doubling up to a cap."""
    cap = min(0.4 * sigma, 0.5 * sigma**2)
    first = min(cap, 0.5 * sigma**2 / (1 + order * q))
    ends = [0.0, first]
    while ends[-1] < 1 + _REACH * sigma:
        ends.append(ends[-1] + min(cap, ends[-1]))
    return np.array(ends)


def _g(p: float, v: Array) -> Array:
    """(1+v)^p - 1 - pv for v > -1 without cancellation: expm1(t) - t + p(log1p(v) - v), t = p log1p(v)."""
    log = np.log1p(v)
    return _expm1_minus(p * log) + p * _log1p_minus(v, log)


def _expm1_minus(t: Array) -> Array:
    series = t * t / 2
    term = series.copy()
    for k in range(3, 20):
        term = term * t / k
        series = series + term
    return np.where(np.abs(t) < 0.5, series, np.expm1(np.clip(t, -700, 700)) - t)


def _log1p_minus(v: Array, log: Array) -> Array:
    w = v / (2 + v)  # log1p(v) = 2 artanh(w), and v = 2w/(1-w)
    tail = np.zeros_like(v)
    for k in range(25, 1, -2):
        tail = (tail + 1 / k) * w * w
    series = 2 * w * tail - v * w
    return np.where(np.abs(v) < 0.3, series, log - v)
