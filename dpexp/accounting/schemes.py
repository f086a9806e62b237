"""T noisy steps under a sampling scheme given by name, as one event."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from dpexp import _validate
from dpexp.accounting.events import (
    BallsAndBins,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Partitioned,
    PoissonSampled,
    Repeated,
)

__all__ = ["SAMPLING", "SAMPLING_IN_WORDS", "lots_per_epoch", "steps_event"]

_NOTHING = Composed(())
_SMALLEST_PROBABILITY = 1e-300  # smaller ones are priced as this


def steps_event(gaussian: Gaussian, sampling_probability: float, steps: int, sampling: str) -> Event:
    """What `steps` noisy steps release.

    Shuffled and balls-and-bins lots come in epochs: an epoch that was begun is priced as a whole one.

    Args:
        gaussian: What one step releases on its lot.
        sampling_probability: q in [0, 1]: lot size ÷ number of rows.
        steps: T >= 0.
        sampling: A key of `SAMPLING`.

    Raises:
        UserError: There is no such sampling, or it cannot have this q.
    """
    build = SAMPLING[_validate.one_of("sampling", sampling, SAMPLING)]
    if steps == 0 or sampling_probability == 0:
        return _NOTHING
    return build(gaussian, sampling_probability, steps)


def lots_per_epoch(sampling_probability: float, sampling: str) -> int:
    """How many lots are priced together; 1 where every lot is drawn afresh."""
    if sampling not in ("shuffle", "balls_and_bins") or sampling_probability == 0:
        return 1
    # A last short lot may be dropped; the tolerance is for q like 1/3, which no float equals.
    return math.floor(1 / max(sampling_probability, _SMALLEST_PROBABILITY) * (1 + 1e-12))


def _poisson(gaussian: Gaussian, q: float, steps: int) -> Event:
    return Repeated(PoissonSampled(gaussian=gaussian, sampling_probability=q), steps)


def _without_replacement(gaussian: Gaussian, q: float, steps: int) -> Event:
    share = Fraction(repr(max(q, _SMALLEST_PROBABILITY)))  # 0.01 is one of a hundred, exactly
    lot = FixedSizeSampled(gaussian=gaussian, lot_size=share.numerator, population=share.denominator)
    return Repeated(lot, steps)


def _shuffle(gaussian: Gaussian, q: float, steps: int) -> Event:
    return Partitioned(gaussian=gaussian, epochs=-(-steps // lots_per_epoch(q, "shuffle")))


def _balls_and_bins(gaussian: Gaussian, q: float, steps: int) -> Event:
    lots = lots_per_epoch(q, "balls_and_bins")
    if abs(lots * q - 1) > 1e-9:
        hint = "Balls-and-bins throws every row into one of B lots."
        raise _validate.refuse("sampling_probability", q, "1/B for a whole number B", hint)
    return BallsAndBins(gaussian=gaussian, lots=lots, epochs=-(-steps // lots))


def _full(gaussian: Gaussian, q: float, steps: int) -> Event:
    if q != 1:
        raise _validate.refuse("sampling_probability", q, "1 (or nothing) with sampling=full")
    return Repeated(gaussian, steps)


SAMPLING: Mapping[str, Callable[[Gaussian, float, int], Event]] = MappingProxyType(
    {
        "poisson": _poisson,
        "without_replacement": _without_replacement,
        "shuffle": _shuffle,
        "balls_and_bins": _balls_and_bins,
        "full": _full,
    }
)

SAMPLING_IN_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "poisson": "every row enters every lot independently with the same probability",
        "without_replacement": "every lot is a uniformly random set of a fixed number of rows",
        "shuffle": "every row is in one lot of every epoch, in an order that adds nothing to the guarantee",
        "balls_and_bins": "in every epoch every row enters one lot, independently and uniformly",
        "full": "every lot is all rows",
    }
)
