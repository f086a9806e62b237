"""Fewer distinct pairs, each of which dominates those that it stands for."""

import math
from collections import defaultdict

from dpexp.accounting.pairs import FixedSizePair, OpposedPair, Pair, PairCounts, PoissonPair

__all__ = ["at_most"]

Sampled = PoissonPair | OpposedPair | FixedSizePair


def at_most(cost: PairCounts, most: int) -> PairCounts:
    """A dominating cost with about `most` distinct sampled pairs.

    The noise of a pair is lowered to the next of a few levels a fixed ratio apart: adding noise is
    post-processing, so less noise dominates. Likewise q is raised: docs/theory/sampling.md, section 6.

    Args:
        cost: Any.
        most: Levels of σ (times levels of q, where q varies).
    """
    if len(cost) <= most:
        return cost
    sampled = [pair for pair in cost if isinstance(pair, Sampled)]
    if not sampled:
        return cost
    several = len({pair.q for pair in sampled}) > 1 and len({pair.sigma for pair in sampled}) > 1
    levels = math.isqrt(most) if several else most
    sigmas = _Levels([pair.sigma for pair in sampled], levels)
    rates = _Levels([pair.q for pair in sampled], levels)
    counts: dict[Pair, int] = defaultdict(int)
    for pair, n in cost.items():
        counts[_lowered(pair, sigmas, rates)] += n
    return PairCounts(counts)


def _lowered(pair: Pair, sigmas: "_Levels", rates: "_Levels") -> Pair:
    if not isinstance(pair, Sampled):
        return pair
    q = max(rates.above(pair.q), pair.q)
    return type(pair)(q=q if q < 1 else pair.q, sigma=min(sigmas.below(pair.sigma), pair.sigma))


class _Levels:
    """Numbers a fixed ratio apart that cover those given."""

    def __init__(self, values: list[float], most: int) -> None:
        self._lowest = min(values)
        self._ratio = math.log(max(values) / self._lowest) / most

    def below(self, value: float) -> float:
        return self._level(math.floor(self._index(value) + 1e-9))

    def above(self, value: float) -> float:
        return self._level(math.ceil(self._index(value) - 1e-9))

    def _index(self, value: float) -> float:
        return math.log(value / self._lowest) / self._ratio if self._ratio > 0 else 0.0

    def _level(self, index: int) -> float:
        return self._lowest * math.exp(self._ratio * index)
