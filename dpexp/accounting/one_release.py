"""The closed form of one release of the Poisson-sampled Gaussian, in floating point.

The outcomes whose loss exceeds ε are those z above, or below, one point, since R(z) = μ/μ₀ rises with z.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

__all__ = ["OneRelease"]


@dataclass(frozen=True, kw_only=True)
class OneRelease:
    """One release at sampling probability q in (0, 1) with noise σ > 0."""

    q: float
    sigma: float

    def log_delta(self, epsilon: float) -> float:
        """The log δ at ε >= 0, the larger of both directions."""
        return max(self._remove(epsilon), self._add(epsilon))

    def _remove(self, epsilon: float) -> float:
        # δ = (1-q)Q₀(z) + qQ₁(z) - e^ε Q₀(z) = q[Q₁(z) - E(z)Q₀(z)], where R(z) = e^ε: 1-q+qE = e^ε
        q, sigma = self.q, self.sigma
        log_e = np.log1p(np.expm1(epsilon) / q) if epsilon < 300 else epsilon - np.log(q)
        z = float(sigma**2 * log_e) + 0.5
        first, second = float(log_ndtr((1 - z) / sigma)), float(log_ndtr(-z / sigma) + log_e)
        return float(np.log(q)) + _log_difference(first, second)

    def _add(self, epsilon: float) -> float:
        # δ = Φ₀(z) - e^ε[(1-q)Φ₀(z) + qΦ₁(z)] = e^ε q[E(z)Φ₀(z) - Φ₁(z)], where R(z) = e^(-ε)
        q, sigma = self.q, self.sigma
        e = 1 + np.expm1(-epsilon) / q
        if e <= 0:
            return -np.inf
        z = float(sigma**2 * np.log(e)) + 0.5
        first, second = float(log_ndtr(z / sigma) + np.log(e)), float(log_ndtr((z - 1) / sigma))
        return epsilon + float(np.log(q)) + _log_difference(first, second)


def _log_difference(larger: float, smaller: float) -> float:
    gap = smaller - larger
    return larger + float(np.log(-np.expm1(gap))) if gap < 0 else -np.inf
