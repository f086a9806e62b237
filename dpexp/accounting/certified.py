"""The certified tight bound: discretize every release pessimistically, compose exactly, invert with proof.

`atoms` and `inversion` prove the bound for any grid and any contour; this file picks good ones.
"""

from collections.abc import Callable

import numpy as np

from dpexp.accounting.inversion import TERMS, Contour, Group, Inversion
from dpexp.accounting.saddle import Composition, Saddle, saddle_near

__all__ = ["epsilon_of", "log_delta_of", "smallest_epsilon"]

_LOG_TAU = np.log(1e-4)  # of the part of δ that may be charged besides the bound itself
_TAIL = 24.0  # nats by which the Gaussian factor has fallen at the end of the contour
_ROUNDS = 3
_FINE, _FEW = 0.03, 8
_LEAST = -5000.0


def epsilon_of(composition: Composition, log_delta: float) -> float:
    """The smallest ε proven at log δ, ∞ if none was found."""
    saddle = Saddle(composition, log_delta, _LOG_TAU)
    if saddle.may_vanish_at(log_delta) and log_delta_of(composition, 0.0) <= log_delta:
        return 0.0
    for start in (saddle.at_delta, saddle.by_tail_bound):
        best = _best_from(composition, saddle, log_delta, start())
        if best < np.inf:
            break
    return best


def _best_from(
    composition: Composition, saddle: Saddle, log_delta: float, start: tuple[float, float]
) -> float:
    """The smallest ε of a few contours, the next chosen for the ε that the last one found."""
    best, (c, guess) = np.inf, start
    for _ in range(_ROUNDS):
        inversion = _inversion(composition, saddle, c, guess)
        found = smallest_epsilon(inversion.log_delta, log_delta, guess)
        best = min(best, found)
        if best == 0 or not np.isfinite(found) or c * abs(found - guess) < 0.5:
            break
        guess, c = found, saddle.at_epsilon(found)
    return float(best)


def smallest_epsilon(log_delta_at: Callable[[float], float], log_delta: float, guess: float) -> float:
    """The smallest ε with log_delta_at(ε) <= log δ, from above to 1e-7; ∞ if none is found.

    Args:
        log_delta_at: An upper bound on log δ(ε), proven at any ε >= 0.
        log_delta: log δ.
        guess: About ε.
    """
    if log_delta_at(0.0) <= log_delta:
        return 0.0
    low, high, factor = 0.0, guess + 1e-12, 1.1
    for _ in range(80):
        if log_delta_at(high) <= log_delta:
            break
        high, factor = high * factor, min(factor * 1.1, 4.0)
    else:
        return np.inf
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if log_delta_at(middle) <= log_delta else (middle, high)
    return high


def log_delta_of(composition: Composition, epsilon: float) -> float:
    """The smallest log δ proven at ε >= 0."""
    out_of_reach = _beyond_all_losses(composition, epsilon)
    if out_of_reach is not None:
        return out_of_reach
    saddle = saddle_near(composition, epsilon, _LOG_TAU)
    inversion = _inversion(composition, saddle, saddle.at_epsilon(epsilon), epsilon)
    return min(inversion.log_delta(epsilon), 0.0)


def _beyond_all_losses(composition: Composition, epsilon: float) -> float | None:
    """The log of the infinite mass, where all finite losses together stay below ε; else None."""
    if composition.variance > 0:
        return None
    atoms = [(d.coarse(_LEAST), n) for d, n in composition.sampled.items()]
    largest = sum(n * float((a.loss + a.loss_error).max()) for a, n in atoms) * (1 + 1e-12)
    infinite = [np.log(n) + a.log_infinite + 1e-9 for a, n in atoms]
    return float(np.logaddexp.reduce(infinite)) if largest < epsilon else None


def _inversion(composition: Composition, saddle: Saddle, c: float, epsilon: float) -> Inversion:
    """The sums over a line of real part c or a little less, for ε near the given one."""
    line = saddle.line(c, epsilon)
    fineness = _FINE if len(composition.sampled) <= _FEW else 2 * _FINE
    fine = [Group(d.fine(saddle.log_share, line.c, fineness), n) for d, n in composition.sampled.items()]
    step = 2 * np.pi / line.period
    end = step * (TERMS - 1)
    added = 2 * max(_TAIL - np.log(np.pi * end), 1.0) / end**2  # μ² of the Gaussian release on top
    return Inversion(fine, Contour(c=line.c, step=step, variance=max(composition.variance, added)))
