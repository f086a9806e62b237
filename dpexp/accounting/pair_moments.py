"""Proven upper bounds on the log moments α(λ) = log E_Q[(P/Q)^(λ+1)] of dominating pairs."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dpexp.accounting import moments
from dpexp.accounting.balls_and_bins import balls_and_bins_log_moments
from dpexp.accounting.fixed_size import fixed_size_log_moments
from dpexp.accounting.moments import Array
from dpexp.accounting.pairs import (
    BallsAndBinsPair,
    FixedSizePair,
    GaussianPair,
    OpposedPair,
    Pair,
    PairCounts,
    PoissonPair,
)

__all__ = ["composed_log_moments", "pair_log_moments"]

_U = 2.0**-53
_LAST_OPPOSED = 1024


def composed_log_moments(pairs: PairCounts, orders: tuple[int, ...]) -> Array:
    """Σ count · α(λ), shape (K,)."""
    total = np.zeros(len(orders))
    for pair, count in pairs.items():
        total = total + float(count) * pair_log_moments(pair, orders)
    return total * (1 + 2 * _U * (len(pairs) + 1))


@lru_cache(maxsize=65_536)
def pair_log_moments(pair: Pair, orders: tuple[int, ...]) -> Array:
    """α(λ) of a pair at integer orders λ >= 1, a proven upper bound in floating point, shape (K,)."""
    alpha = _BY_TYPE[type(pair)](pair, orders)
    alpha.setflags(write=False)
    return alpha


def _gaussian(pair: GaussianPair, orders: tuple[int, ...]) -> Array:
    return moments.gaussian_log_moments(pair.sigma, np.asarray(orders, dtype=np.float64)) * (1 + 8 * _U)


def _poisson(pair: PoissonPair, orders: tuple[int, ...]) -> Array:
    alpha = moments.log_moments(pair.q, pair.sigma, orders)
    return moments.round_up(alpha, np.asarray(orders, dtype=np.float64), pair.q, pair.sigma)


def _opposed(pair: OpposedPair, orders: tuple[int, ...]) -> Array:
    """α(λ) <= (α_P(2λ+1) + α_P(2λ))/2 with α_P that of the Poisson pair.

    Cauchy-Schwarz: E₀[A^(λ+1) B^(-λ)]² <= E₀[A^(2λ+2)] E₀[B^(-2λ)], B has the distribution of A, and E₁(2λ)
    <= E₂(2λ) (moments.py). Equal at q = 1 up to λ/(2σ²).
    """
    within = [order for order in orders if order <= _LAST_OPPOSED]
    doubled = sorted({2 * order for order in within} | {2 * order + 1 for order in within})
    at = dict(zip(doubled, _poisson(PoissonPair(q=pair.q, sigma=pair.sigma), tuple(doubled)), strict=True))
    bounds = [(at[2 * order] + at[2 * order + 1]) / 2 for order in within]
    return np.array(bounds + [np.inf] * (len(orders) - len(within))) * (1 + 2 * _U)


def _fixed_size(pair: FixedSizePair, orders: tuple[int, ...]) -> Array:
    return fixed_size_log_moments(pair.q, pair.sigma, orders)


def _balls_and_bins(pair: BallsAndBinsPair, orders: tuple[int, ...]) -> Array:
    return balls_and_bins_log_moments(pair.lots, pair.sigma, orders)


_BY_TYPE: Mapping[type, Callable[[Any, Sequence[int]], Array]] = {
    GaussianPair: _gaussian,
    PoissonPair: _poisson,
    OpposedPair: _opposed,
    FixedSizePair: _fixed_size,
    BallsAndBinsPair: _balls_and_bins,
}
