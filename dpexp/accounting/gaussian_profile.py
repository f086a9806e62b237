"""The exact (ε, δ) of μ-Gaussian differential privacy, rounded to the private side.

Balle and Wang (2018), arXiv 1805.06530, Theorem 8. A release on all rows with noise multiplier σ has μ = 1/σ;
n of them have μ = √n/σ, whatever their order. No lot is drawn at random here: nothing is amplified.
"""

import math
import sys

from scipy.special import erfcx, log_ndtr

from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.events import Composed, Event, Gaussian, Relation, Repeated

__all__ = ["epsilon_of_gdp", "largest_gdp", "log_delta_of_gdp", "squared_gdp"]

_MOST_EPSILON = 1e15


def epsilon_of_gdp(mu: float, log_delta: float) -> float:
    """The smallest ε such that every μ-GDP mechanism is (ε, δ)-DP, rounded up.

    Args:
        mu: μ >= 0.
        log_delta: log δ < 0.

    Returns:
        ε >= 0; ∞ for μ so large that ε passes 10¹⁵.
    """
    low, high = 0.0, 1.0
    if log_delta_of_gdp(mu, low) <= log_delta:
        return low
    while log_delta_of_gdp(mu, high) > log_delta:
        low, high = high, 2 * high
        if high > _MOST_EPSILON:
            return math.inf
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if log_delta_of_gdp(mu, middle) <= log_delta else (middle, high)
    return high


def largest_gdp(epsilon: float, log_delta: float) -> float:
    """The largest μ such that every μ-GDP mechanism is (ε, δ)-DP, rounded down.

    Args:
        epsilon: ε > 0.
        log_delta: log δ < 0.

    Returns:
        μ with Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ) <= δ (Balle and Wang 2018, arXiv 1805.06530, Theorem 8).
    """
    low, high = 0.0, 1.0
    while log_delta_of_gdp(high, epsilon) <= log_delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta_of_gdp(middle, epsilon) <= log_delta else (low, middle)
    return low


def log_delta_of_gdp(mu: float, epsilon: float) -> float:
    """An upper bound on log δ at ε of every μ-GDP mechanism: Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ).

    Args:
        mu: μ >= 0.
        epsilon: ε >= 0.

    Returns:
        log δ <= 0, with its own rounding error added.
    """
    if mu == 0:
        return -math.inf
    a = epsilon / mu - mu / 2
    first = float(log_ndtr(-a))
    if first == -math.inf:  # Φ(-a) < exp(-a²/2), and a² overflows
        return -sys.float_info.max
    ratio = epsilon + float(log_ndtr(-epsilon / mu - mu / 2)) - first
    error = 1e-14 * (1 + epsilon + abs(first))  # of the logarithms, and so relative of either tail
    difference = first + math.log(min(-math.expm1(min(ratio, 0.0)) + error, 1.0))
    return min(difference, _chord(a, mu), 0.0)


def _chord(a: float, mu: float) -> float:
    """An upper bound on log δ that is tight for small μ, where the difference of tails loses its digits.

    δ = φ(a)(M(a) - M(a+μ)) with the Mills ratio M = Φ(-x)/φ(x), and -M'(x) = 1 - xM(x) falls with x, so that
    M(a) - M(a+μ) <= μ(1 - aM(a)).
    """
    if a < -30 or math.isinf(a):
        return 0.0
    mills = math.sqrt(math.pi / 2) * float(erfcx(a / math.sqrt(2)))
    slope = 1 - a * mills + 1e-14 * (1 + abs(a) * mills)
    log_density = -a * a / 2 * (1 - 1e-15) - math.log(2 * math.pi) / 2
    return log_density + math.log(mu) + math.log(slope) + 1e-14


def squared_gdp(event: Event, relation: Relation) -> float:
    """μ² = Σ 1/σ² of releases on all rows, to a few roundings.

    Raises:
        UnsupportedEventError: A part of the event draws a lot.
    """
    match event:
        case Gaussian():
            sigma = event.effective_multiplier(relation)
            return math.inf if sigma * sigma == 0 else 1 / (sigma * sigma)
        case Repeated(part, count):
            return 0.0 if count == 0 else count * squared_gdp(part, relation)
        case Composed(parts):
            return math.fsum(squared_gdp(part, relation) for part in parts)
        case _:
            raise UnsupportedEventError(
                f"{event!r} draws a lot; the Gaussian profile is for releases on all rows.\n"
                "Use accountant=pld, rdp or moments, or RenyiFilter, for sampled releases."
            )
