"""The closed form of one sampled release.

The outcomes whose loss exceeds ε are those z above, or below, one point: the likelihood ratio rises with z.
"""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import log_ndtr

from dpexp.accounting.pairs import FixedSizePair, OpposedPair, PairCounts, PoissonPair

__all__ = ["AbstractOneRelease", "OneRelease", "OpposedRelease", "one_release_of"]

_ERROR = 4e-15  # of log_ndtr and of the exponents, for each unit of their size


@dataclass(frozen=True, kw_only=True)
class AbstractOneRelease(ABC):
    """One release at sampling probability q in (0, 1) with noise σ > 0."""

    q: float
    sigma: float

    def log_delta(self, epsilon: float) -> float:
        """The log δ at ε >= 0, in floating point."""
        return self._log_delta(epsilon, 0.0)

    def log_delta_bound(self, epsilon: float) -> float:
        """The same rounded up."""
        return min(self._log_delta(epsilon, _ERROR) + 1e-13, 0.0)

    @abstractmethod
    def _log_delta(self, epsilon: float, error: float) -> float:
        """The log δ with a relative error of each term, for each unit of its size, allowed for."""


@final
@dataclass(frozen=True, kw_only=True)
class OneRelease(AbstractOneRelease):
    """One release of `pairs.PoissonPair`, or of `pairs.FixedSizePair`.

    A wrong last digit of z or E(z) matters in second order, or is charged.

    Attributes:
        both_ways: Whether the larger δ of both directions counts. The profile of `FixedSizePair` is, at
            ε >= 0, that of (μ, μ₀) alone.
    """

    both_ways: bool = True

    def _log_delta(self, epsilon: float, error: float) -> float:
        remove = self.remove(epsilon, error)
        return max(remove, self.add(epsilon, error)) if self.both_ways else remove

    def remove(self, epsilon: float, error: float = 0.0) -> float:
        """The log δ of (μ, μ₀), with a relative error of each term allowed for."""
        # δ = (1-q)Q₀(z) + qQ₁(z) - e^ε Q₀(z) = q[Q₁(z) - E(z)Q₀(z)], R(z) = 1-q+qE(z) = e^ε
        q, sigma = self.q, self.sigma
        log_e = np.log1p(np.expm1(epsilon) / q) if epsilon < 300 else epsilon - np.log(q)
        z = self._z(float(log_e))
        first, second = float(log_ndtr((1 - z) / sigma)), float(log_ndtr(-z / sigma) + log_e)
        return float(np.log(q)) + _log_difference(first, second, error * (1 + abs(log_e)))

    def add(self, epsilon: float, error: float = 0.0) -> float:
        """The log δ of (μ₀, μ), with a relative error of each term allowed for."""
        # δ = Φ₀(z) - e^ε[(1-q)Φ₀(z) + qΦ₁(z)] = e^ε q[E(z)Φ₀(z) - Φ₁(z)], where R(z) = e^(-ε)
        q, sigma = self.q, self.sigma
        e = float(1 + np.expm1(-epsilon) / q + 4 * error)  # a larger E(z) is a smaller ε, whose δ is larger
        if e <= 0:
            return -np.inf
        log_e = float(np.log(e))
        z = self._z(log_e)
        first, second = float(log_ndtr(z / sigma)) + log_e, float(log_ndtr((z - 1) / sigma))
        return epsilon + float(np.log(q)) + _log_difference(first, second, error * (1 + abs(log_e)))

    def _z(self, log_e: float) -> float:
        return self.sigma**2 * log_e + 0.5


@final
@dataclass(frozen=True, kw_only=True)
class OpposedRelease(AbstractOneRelease):
    """One release of `pairs.OpposedPair`, A = R(z) against B = R(-z): docs/theory/pld.md, section 3.

    With w = e^(z/σ²) and c = e^(-1/(2σ²)), A = e^ε B is the quadratic qc·w² - (1-q)(e^ε - 1)w - e^ε qc = 0,
    whose root is log w = ε/2 + asinh((1-q)sinh(ε/2)/(qc)). At any z at or below it,

        δ(ε) <= q[Φ((1-z)/σ) - E(z)Φ(-z/σ)] + q e^ε [E(-z)Φ(-z/σ) - Φ(-(1+z)/σ)],

    with equality at the root; both brackets are positive.
    """

    def _log_delta(self, epsilon: float, error: float) -> float:
        s, half = self.sigma, 0.5 / self.sigma / self.sigma
        u = self._log_w(epsilon, error)
        rest = float(log_ndtr(-s * u))
        sizes = error * (1 + abs(u) + half + (1 / s + s * u) * (2 + 1 / s + s * u))  # of the arguments of Φ
        above = _log_difference(float(log_ndtr(1 / s - s * u)), u - half + rest, sizes)
        below = _log_difference(-u - half + rest, float(log_ndtr(-1 / s - s * u)), sizes)
        return float(np.log(self.q)) + float(np.logaddexp(above, epsilon + below)) + error * epsilon

    def _log_w(self, epsilon: float, error: float) -> float:
        """z/σ² at the threshold, rounded down if an error is given."""
        if epsilon == 0:
            return 0.0
        terms = (np.log1p(-self.q), -np.log(self.q), 0.5 / self.sigma / self.sigma, _log_sinh(epsilon / 2))
        log_v = float(sum(terms))
        v = float(np.exp(min(log_v, 40.0)))
        root = float(np.arcsinh(v)) if log_v < 40 else log_v + float(np.log(2))
        wrong = error * (epsilon + root + min(v, 1.0) * (2 + float(np.abs(terms).sum())))
        return max(epsilon / 2 + root - wrong, 0.0)


def one_release_of(cost: PairCounts) -> AbstractOneRelease | None:
    """The closed form, if the cost is that of just one sampled release."""
    if cost.total_count != 1:
        return None
    (pair,) = cost
    match pair:
        case PoissonPair(q=q, sigma=sigma):
            return OneRelease(q=q, sigma=sigma)
        case FixedSizePair(q=q, sigma=sigma):
            return OneRelease(q=q, sigma=sigma, both_ways=False)
        case OpposedPair(q=q, sigma=sigma):
            return OpposedRelease(q=q, sigma=sigma)
        case _:
            return None


def _log_sinh(x: float) -> float:
    return x - float(np.log(2)) + float(np.log(-np.expm1(-2 * x)))


def _log_difference(larger: float, smaller: float, error: float) -> float:
    if larger == -np.inf:  # exp(-x²/2) of an x² that overflows
        return -sys.float_info.max
    share = -np.expm1(min(smaller - larger, 0.0)) + error * (1 + abs(larger) + abs(smaller))
    return larger + float(np.log(share)) if share > 0 else -np.inf
