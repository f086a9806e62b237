"""The closed form of one release of the Poisson-sampled Gaussian, in floating point.

The outcomes whose loss exceeds ε are those z above, or below, one point, since R(z) = μ/μ₀ rises with z.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from dpexp.accounting.pairs import PairCounts, PoissonPair

__all__ = ["OneRelease"]

_ERROR = 4e-15  # of log_ndtr and of the exponents, for each unit of their size


@dataclass(frozen=True, kw_only=True)
class OneRelease:
    """One release at sampling probability q in (0, 1) with noise σ > 0."""

    q: float
    sigma: float

    @classmethod
    def of(cls, cost: PairCounts) -> "OneRelease | None":
        """The release, if the cost is that of just one."""
        if cost.total_count != 1:
            return None
        (pair,) = cost
        return cls(q=pair.q, sigma=pair.sigma) if isinstance(pair, PoissonPair) else None

    def log_delta(self, epsilon: float) -> float:
        """The log δ at ε >= 0, the larger of both directions, in floating point."""
        return max(self.remove(epsilon), self.add(epsilon))

    def log_delta_bound(self, epsilon: float) -> float:
        """The same rounded up; a wrong last digit of z or E(z) matters in second order, or is charged."""
        return min(max(self.remove(epsilon, _ERROR), self.add(epsilon, _ERROR)) + 1e-13, 0.0)

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


def _log_difference(larger: float, smaller: float, error: float) -> float:
    share = -np.expm1(min(smaller - larger, 0.0)) + error * (1 + abs(larger) + abs(smaller))
    return larger + float(np.log(share)) if share > 0 else -np.inf
