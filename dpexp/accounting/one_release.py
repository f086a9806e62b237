"""The closed form of one release of the Poisson-sampled Gaussian, in floating point."""

import numpy as np
from scipy.special import log_ndtr

__all__ = ["one_release_log_delta"]


def one_release_log_delta(q: float, sigma: float, epsilon: float) -> tuple[float, float]:
    """The log δ(ε) of one Poisson-sampled release, (μ, μ₀) first and (μ₀, μ) second, in floating point.

    The outcomes where the loss exceeds ε are z above, or below, one point, since R(z) = μ/μ₀ rises with z:
    z = σ² log((e^(±ε) - 1 + q)/q) + 1/2.

    Args:
        q: Sampling probability in (0, 1).
        sigma: σ > 0.
        epsilon: ε >= 0.
    """
    up = sigma**2 * (np.log(np.expm1(epsilon) + q) - np.log(q)) + 0.5 if epsilon < 700 else np.inf
    if epsilon >= 700:
        up = sigma**2 * (epsilon - np.log(q)) + 0.5
    remove = _above(q, sigma, epsilon, float(up))
    gap = np.expm1(-epsilon) + q
    add = -np.inf if gap <= 0 else _below(q, sigma, epsilon, float(sigma**2 * np.log(gap / q) + 0.5))
    return remove, add


def _above(q: float, sigma: float, epsilon: float, z: float) -> float:
    # δ = q Q₁(z) - (e^ε - 1 + q) Q₀(z), and e^ε - 1 + q = q E(z)
    first, second = log_ndtr((1 - z) / sigma), log_ndtr(-z / sigma) + (2 * z - 1) / 2 / sigma**2
    return _log_difference(np.log(q) + first, np.log(q) + second)


def _below(q: float, sigma: float, epsilon: float, z: float) -> float:
    # δ = (1 - e^ε(1-q)) Φ₀(z) - e^ε q Φ₁(z), and 1 - e^ε(1-q) = e^ε q E(z)
    first = log_ndtr(z / sigma) + (2 * z - 1) / 2 / sigma**2
    return _log_difference(epsilon + np.log(q) + first, epsilon + np.log(q) + log_ndtr((z - 1) / sigma))


def _log_difference(larger: float, smaller: float) -> float:
    gap = float(smaller) - float(larger)
    return float(larger) + float(np.log(-np.expm1(gap))) if gap < 0 else -np.inf
