"""Lower bounds on ε of samplers whose exact figure nobody knows, in floating point."""

import numpy as np
from scipy.special import log_ndtr

from dpexp import _validate
from dpexp.accounting.accountant import UnsupportedEventError
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.contour import ExactAccountant
from dpexp.accounting.events import (
    FixedSizeSampled,
    Gaussian,
    Partitioned,
    PoissonSampled,
    Relation,
    Repeated,
)
from dpexp.accounting.moments import Array

__all__ = ["fixed_size_lower", "shuffle_lower"]


def fixed_size_lower(event: FixedSizeSampled, *, steps: int, delta: float) -> PrivacyBound:
    """ε that lots of fixed size do not stay below under replace-one.

    Attained: x_i = +C, x_i' = -C and every other row -C. Then the lots differ as those of a Poisson sampler
    of rate m/n and sensitivity f do, whose exact ε this is.

    Args:
        event: One lot.
        steps: T >= 0.
        delta: δ in (0, 1).
    """
    gaussian, exact, delta = event.gaussian, ExactAccountant(), _validate.fraction("delta", delta)
    opposed = Gaussian(noise_multiplier=gaussian.effective_multiplier(Relation.REPLACE_ONE))
    lot = PoissonSampled(gaussian=opposed, sampling_probability=event.sampling_probability)
    cost = exact.price(Repeated(lot, steps), Relation.ADD_OR_REMOVE_ONE)
    value = exact.epsilon(cost, delta, Relation.ADD_OR_REMOVE_ONE)
    return _lower(float(value), delta, Relation.REPLACE_ONE)


def shuffle_lower(event: Partitioned, *, lots: int, delta: float) -> PrivacyBound:
    """ε that one epoch of shuffled lots does not stay below under zero-out.

    Chua et al. (2024), "How private are DP-SGD implementations?", arXiv 2403.17673: with all other rows at
    -C, one lot stands out by 2C instead of C, and the event that the largest of the noisy sums passes a
    threshold t gives δ >= P(max >= t) - e^ε Q(max >= t).

    Args:
        event: One epoch.
        lots: B >= 2 lots in it.
        delta: δ in (0, 1).

    Raises:
        UnsupportedEventError: More than one epoch.
    """
    if event.epochs != 1:
        raise UnsupportedEventError(f"The lower bound for shuffled lots is for one epoch: {event!r}.")
    count = _validate.integer("lots", lots, at_least=2)
    sigma = _validate.number("noise_multiplier", event.gaussian.noise_multiplier, above=0)
    log_delta = float(np.log(_validate.fraction("delta", delta)))
    center, width = 1.0, 4 + 12 * sigma
    for _ in range(4):
        thresholds = np.linspace(center - width, center + width, 4001)
        gains = _gains(thresholds, count, sigma, log_delta)
        center, width = float(thresholds[int(np.argmax(gains))]), width / 500
    return _lower(max(float(gains.max()), 0.0), delta, Relation.ZERO_OUT)


def _gains(thresholds: Array, lots: int, sigma: float, log_delta: float) -> Array:
    """ε at which each threshold gives δ: log of (P - δ)/Q, -∞ where P <= δ."""
    with_row = _log_some_above(thresholds, 2.0, lots, sigma)
    without = _log_some_above(thresholds, 1.0, lots, sigma)
    left = np.minimum(log_delta - with_row, -1e-300)
    gain: Array = with_row + np.log(-np.expm1(left)) - without
    return np.where(with_row > log_delta, gain, -np.inf)


def _log_some_above(thresholds: Array, mean: float, lots: int, sigma: float) -> Array:
    """The log of P(max >= t) for one N(mean, σ²) and lots-1 of N(0, σ²)."""
    none = log_ndtr((thresholds - mean) / sigma) + (lots - 1) * log_ndtr(thresholds / sigma)
    return np.asarray(np.log(-np.expm1(np.minimum(none, -1e-300))))


def _lower(value: float, delta: float, relation: Relation) -> PrivacyBound:
    return PrivacyBound(
        value * (1 - 1e-9), kind=Kind.LOWER, accountant="lower", relation=relation, delta=delta
    )
