"""Fewer distinct pairs, each of which dominates those that it stands for."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpexp.accounting.pairs import FixedSizePair, OpposedPair, Pair, PairCounts, PoissonPair

__all__ = ["at_most"]

Sampled = PoissonPair | OpposedPair | FixedSizePair
_MOST_LEVELS = 2**24


def at_most(cost: PairCounts, most: int) -> PairCounts:
    """A dominating cost with at most `most` distinct sampled pairs of each type.

    The plane of (log σ, log q) is cut into cells, the more the fewer of them are occupied. In each cell every
    pair gets the smallest σ and the largest q found there: adding noise is post-processing, so less noise
    dominates, and so does a larger q (docs/theory/sampling.md, section 6).

    Args:
        cost: Any.
        most: Occupied cells, at least 4.
    """
    if len(cost) <= most:
        return cost
    counts: dict[Pair, int] = {pair: n for pair, n in cost.items() if not isinstance(pair, Sampled)}
    for kind in (PoissonPair, OpposedPair, FixedSizePair):
        pairs = [pair for pair in cost if isinstance(pair, kind)]
        for pair, n in zip(_merged(pairs, most), [cost[pair] for pair in pairs], strict=True):
            counts[pair] = counts.get(pair, 0) + n
    return PairCounts(counts)


def _merged(pairs: Sequence[Sampled], most: int) -> list[Sampled]:
    """The pair of its cell in place of each pair."""
    if len(pairs) <= most:
        return list(pairs)
    sigma, q = np.array([pair.sigma for pair in pairs]), np.array([pair.q for pair in pairs])
    cell = _cells(np.stack([_position(sigma), _position(q)]), most)
    least, largest = np.full(int(cell.max()) + 1, np.inf), np.zeros(int(cell.max()) + 1)
    np.minimum.at(least, cell, sigma)
    np.maximum.at(largest, cell, q)
    ends = zip(largest[cell].tolist(), least[cell].tolist(), strict=True)
    return [type(pair)(q=high, sigma=low) for pair, (high, low) in zip(pairs, ends, strict=True)]


def _position(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where each number lies between the smallest and the largest, from 0 to 1 in logarithms."""
    logs = np.log(values)
    width = float(np.ptp(logs))
    place: NDArray[np.float64] = (logs - logs.min()) / width if width > 0 else np.zeros_like(logs)
    return place


def _cells(places: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """The number of each pair's cell, with as many levels an axis as occupy no more than `most`."""

    def cells_at(levels: int) -> NDArray[np.intp]:
        index = np.minimum(np.floor(places * levels), levels - 1).astype(np.int64)
        return np.unique(index[0] * levels + index[1], return_inverse=True)[1]

    few, many = math.isqrt(most), _MOST_LEVELS
    while many - few > 1:
        middle = math.isqrt(few * many) if many > 4 * few else (few + many) // 2
        if int(cells_at(middle).max()) < most:
            few = middle
        else:
            many = middle
    return cells_at(few)
