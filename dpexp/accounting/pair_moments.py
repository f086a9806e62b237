"""Proven upper bounds on the log moments α(λ) = log E_Q[(P/Q)^(λ+1)] of dominating pairs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

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

__all__ = ["composed_log_moments", "log_moments_of_many", "pair_log_moments"]

_U = 2.0**-53
_LAST_OPPOSED = 1024
_KNOT_RATIO = 0.01  # of θ from knot to knot; the chord is about 1e-5 too high
_BLOCK = 1024


def composed_log_moments(pairs: PairCounts, orders: tuple[int, ...]) -> Array:
    """Σ count · α(λ), shape (K,)."""
    total = np.zeros(len(orders))
    if not pairs:
        return total
    distinct = list(pairs)
    counts = np.array([float(pairs[pair]) for pair in distinct])
    for rows, alphas in _in_blocks(distinct, orders):
        total += (counts[rows, np.newaxis] * alphas).sum(axis=0)
    return total * (1 + 2 * _U * (len(pairs) + 1))


def log_moments_of_many(pairs: Sequence[Pair], orders: tuple[int, ...]) -> Array:
    """α(λ) of each pair, shape (N, K); a schedule of thousands of distinct σ is interpolated from above."""
    table = np.empty((len(pairs), len(orders)))
    for rows, alphas in _in_blocks(pairs, orders):
        table[rows] = alphas
    return table


def _in_blocks(pairs: Sequence[Pair], orders: tuple[int, ...]) -> Iterator[tuple[list[int], Array]]:
    """Rows of `pairs` and their α, shape (rows, K)."""
    by_rate: dict[float, list[int]] = defaultdict(list)
    for row, pair in enumerate(pairs):
        if isinstance(pair, PoissonPair):
            by_rate[pair.q].append(row)
        else:
            yield [row], pair_log_moments(pair, orders)[np.newaxis]
    for q, rows in by_rate.items():
        yield from _poisson_blocks(q, rows, np.array([pairs[row].sigma for row in rows]), orders)


def _poisson_blocks(
    q: float, rows: list[int], sigmas: Array, orders: tuple[int, ...]
) -> Iterator[tuple[list[int], Array]]:
    theta = 1 / sigmas**2
    knots = int(np.ceil(np.log(theta.max() / theta.min()) / _KNOT_RATIO)) + 2
    if len(set(sigmas.tolist())) <= knots:
        for row, sigma in zip(rows, sigmas.tolist(), strict=True):
            yield [row], pair_log_moments(PoissonPair(q=q, sigma=sigma), orders)[np.newaxis]
        return
    table = _chord_table(q, float(sigmas.min()), float(sigmas.max()), knots, orders)
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        yield rows[part], table.at(theta[part])


@dataclass(frozen=True, eq=False)
class _ChordTable:
    """α at knots in θ = 1/σ²; between them the chord is above, as α is the log of a sum of exp(θ·const)."""

    theta: Array
    alpha: Array

    def at(self, theta: Array) -> Array:
        right = np.clip(np.searchsorted(self.theta, theta), 1, len(self.theta) - 1)
        width = self.theta[right] - self.theta[right - 1]
        share = np.clip((theta - self.theta[right - 1]) / width, 0.0, 1.0)[:, np.newaxis]
        chord: Array = (1 - share) * self.alpha[right - 1] + share * self.alpha[right]
        return chord * (1 + 1e-12)  # also for the rounding of θ and of the share


@lru_cache(maxsize=16)
def _chord_table(q: float, lowest: float, highest: float, knots: int, orders: tuple[int, ...]) -> _ChordTable:
    theta = np.geomspace(1 / highest**2 * (1 - 1e-12), 1 / lowest**2 * (1 + 1e-12), knots)
    sigmas = 1 / np.sqrt(theta)
    alpha = [_poisson(PoissonPair(q=q, sigma=float(sigma)), orders) for sigma in sigmas]
    return _ChordTable(theta, np.array(alpha))


@lru_cache(maxsize=65_536)
def pair_log_moments(pair: Pair, orders: tuple[int, ...]) -> Array:
    """α(λ) of a pair at integer orders λ >= 1, a proven upper bound in floating point, shape (K,)."""
    alpha = _log_moments(pair, orders)
    alpha.setflags(write=False)
    return alpha


def _log_moments(pair: Pair, orders: tuple[int, ...]) -> Array:
    match pair:
        case GaussianPair():
            lambdas = np.asarray(orders, dtype=np.float64)
            return moments.gaussian_log_moments(pair.sigma, lambdas) * (1 + 8 * _U)
        case PoissonPair():
            return _poisson(pair, orders)
        case OpposedPair():
            return _opposed(pair, orders)
        case FixedSizePair():
            return fixed_size_log_moments(pair.q, pair.sigma, orders)
        case BallsAndBinsPair():
            return balls_and_bins_log_moments(pair.lots, pair.sigma, orders)


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
