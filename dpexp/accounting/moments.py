"""Log moments α(λ) of the sampled Gaussian mechanism.

Abadi et al., "Deep Learning with Differential Privacy" (2016), arXiv 1607.00133v2, section 3.2. With
μ₀ = N(0, σ²), μ₁ = N(1, σ²) and μ = (1-q)μ₀ + qμ₁:

    α(λ) = log max(E₁, E₂),  E₁ = E_μ₀[(μ₀/μ)^λ],  E₂ = E_μ[(μ/μ₀)^λ] = E_μ₀[(μ/μ₀)^(λ+1)].

E₂ is never below E₁ (Mironov, Talwar and Zhang 2019, arXiv 1908.10530v1, Theorem 5), and at integer λ it
is a finite sum of positive terms, so that no digit is lost however small α is. In terms of Rényi
divergence, α(λ) = λ·D_{λ+1}(μ‖μ₀).
"""

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

__all__ = ["Array", "gaussian_log_moments", "log_expm1", "log_moments", "round_up"]

Array: TypeAlias = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-53


def gaussian_log_moments(noise_multiplier: float, orders: Array) -> Array:
    """α(λ) = λ(λ+1)/(2σ²) of the Gaussian mechanism on all rows.

    Args:
        noise_multiplier: σ >= 0; 0 gives ∞.
        orders: λ > 0, shape (K,).

    Returns:
        α, shape (K,).
    """
    if noise_multiplier == 0:
        return np.full(orders.shape, np.inf)
    with np.errstate(over="ignore"):  # σ near 1e-160 gives the infinite α it should
        return orders * (orders + 1) / 2 / noise_multiplier / noise_multiplier


def log_moments(sampling_probability: float, noise_multiplier: float, orders: tuple[int, ...]) -> Array:
    """α(λ) of one lot of the Poisson-sampled Gaussian, in floating point.

    Subtracting the terms k = 0 and 1 from the binomial sum of E₂ exactly (they sum, with all others, to
    1 when every exponent is 0) leaves, with a = λ+1 and e_k = k(k-1)/(2σ²),

        E₂ - 1 = Σ_{k=2..a} C(a,k) q^k (1-q)^(a-k) (exp(e_k) - 1),

    evaluated in log space.

    Args:
        sampling_probability: q in [0, 1].
        noise_multiplier: σ >= 0; 0 gives ∞ (unless q = 0).
        orders: Integer λ >= 1, increasing.

    Returns:
        α, shape (K,), good to about 1e-13 relative; `round_up` makes it a proven upper bound.
    """
    q, sigma = sampling_probability, noise_multiplier
    lambdas = np.asarray(orders, dtype=np.float64)
    if q == 0:
        return np.zeros(lambdas.shape)
    if q == 1 or sigma == 0:
        return gaussian_log_moments(sigma, lambdas)
    terms = _binomial_terms(orders)
    exponent = terms.k * (terms.k - 1) / 2 / sigma / sigma
    log_terms = terms.log_binomial + terms.k * np.log(q) + terms.rest * np.log1p(-q) + log_expm1(exponent)
    log_x = _segment_logsumexp(log_terms, terms.starts)
    return np.logaddexp(0.0, log_x)  # log(1 + x), exact for tiny x too


class _Terms(NamedTuple):
    """All (λ, k) pairs of the sums, flattened; `starts` are the offsets of each λ."""

    k: Array
    rest: Array
    log_binomial: Array
    starts: NDArray[np.intp]


@lru_cache(maxsize=8)
def _binomial_terms(orders: tuple[int, ...]) -> _Terms:
    counts = np.asarray(orders)  # k = 2..λ+1 are λ terms
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    a = np.repeat(counts + 1.0, counts)
    k = np.concatenate([np.arange(2.0, order + 2) for order in orders])
    log_binomial = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    return _Terms(k, a - k, log_binomial, starts)


def log_expm1(x: Array) -> Array:
    """log(exp(x) - 1) for x > 0, without overflow; -∞ where x underflows to 0."""
    with np.errstate(divide="ignore"):
        return np.where(x > 30, x + np.log1p(-np.exp(-x)), np.log(np.expm1(np.minimum(x, 31))))


def _segment_logsumexp(values: Array, starts: NDArray[np.intp]) -> Array:
    top: Array = np.maximum.reduceat(values, starts)
    lengths = np.diff(np.append(starts, len(values)))
    with np.errstate(invalid="ignore"):  # ∞ - ∞ where a whole segment is infinite
        scaled = np.exp(values - np.repeat(top, lengths))
        total: Array = top + np.log(np.add.reduceat(scaled, starts))
    return np.where(np.isinf(top), top, total)


def round_up(alpha: Array, orders: Array, sampling_probability: float, noise_multiplier: float) -> Array:
    """Adds to `log_moments` its a-priori rounding error, so that the result is an upper bound.

    Every log-term is off by at most 8u(log a! + a|log q| + e_a + 8), u = 2⁻⁵³, so E₂ - 1 is off by that
    factor, and α = log E₂ by at most min(α, 1) times it.

    Args:
        alpha: As `log_moments` returns it for these q and σ, shape (K,).
        orders: λ, shape (K,).
        sampling_probability: q in [0, 1].
        noise_multiplier: σ >= 0.

    Returns:
        The larger α, shape (K,).
    """
    if sampling_probability == 0 or noise_multiplier == 0:
        return alpha
    a = orders + 1
    exponent = orders * a / 2 / noise_multiplier / noise_multiplier
    size = gammaln(a + 1) + a * abs(np.log(sampling_probability)) + exponent + 8
    inflated: Array = alpha + 8 * _UNIT_ROUNDOFF * size * np.minimum(alpha, 1.0)
    return inflated
