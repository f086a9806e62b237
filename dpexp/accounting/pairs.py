"""Dominating pairs: what one release costs at worst, with data set and sampler already worked in.

A pair (P, Q) of distributions *dominates* a release when, for every pair of neighbors and every α >= 0, the
hockey-stick divergence of the two outputs is at most H_α(P‖Q). Dominating pairs compose (Zhu, Dong and Wang
2022, arXiv 2106.08567v4, Theorem 10), so an accountant needs to know nothing but pairs and counts. Proofs
that the pairs made in `samplers.py` dominate: docs/theory/sampling.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "BallsAndBinsPair",
    "FixedSizePair",
    "GaussianPair",
    "OpposedPair",
    "Pair",
    "PairCounts",
    "PoissonPair",
]


@dataclass(frozen=True, kw_only=True)
class GaussianPair:
    """(N(1, σ²), N(0, σ²)), with σ >= 0."""

    sigma: float


@dataclass(frozen=True, kw_only=True)
class PoissonPair:
    """The two pairs (μ, μ₀) and (μ₀, μ), μ₀ = N(0, σ²), μ = (1-q)μ₀ + q N(1, σ²), 0 < q < 1, σ > 0.

    Two directions, each composed with its own kind; the larger figure counts.
    """

    q: float
    sigma: float


@dataclass(frozen=True, kw_only=True)
class OpposedPair:
    """((1-q)N(0, σ²) + q N(1, σ²), (1-q)N(0, σ²) + q N(-1, σ²)), 0 < q < 1, σ > 0."""

    q: float
    sigma: float


@dataclass(frozen=True, kw_only=True)
class FixedSizePair:
    """The pair whose profile is H_α(μ‖μ₀) for α >= 1, and the same with P and Q swapped below; 0 < q < 1."""

    q: float
    sigma: float


@dataclass(frozen=True, kw_only=True)
class BallsAndBinsPair:
    """(1/B Σ_t N(e_t, σ²I), N(0, σ²I)) in R^B and the swapped pair: one epoch of B >= 2 lots, σ > 0."""

    lots: int
    sigma: float


Pair: TypeAlias = GaussianPair | PoissonPair | OpposedPair | FixedSizePair | BallsAndBinsPair


class PairCounts(Mapping[Pair, int]):
    """The cost of a composition as a multiset of pairs; it adds, and is hashable."""

    def __init__(self, counts: Mapping[Pair, int] | None = None) -> None:
        self._counts = {pair: n for pair, n in (counts or {}).items() if n > 0}

    def __getitem__(self, pair: Pair) -> int:
        return self._counts[pair]

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __hash__(self) -> int:
        return hash(frozenset(self._counts.items()))

    def __add__(self, other: "PairCounts") -> "PairCounts":
        return PairCounts.total((self, other))

    @classmethod
    def total(cls, parts: Iterable["PairCounts"]) -> "PairCounts":
        """The cost of all the parts."""
        counts: dict[Pair, int] = {}
        for part in parts:
            for pair, n in part._counts.items():
                counts[pair] = counts.get(pair, 0) + n
        return cls(counts)

    def __rmul__(self, count: int) -> "PairCounts":
        return PairCounts({pair: count * n for pair, n in self._counts.items()})

    @property
    def total_count(self) -> int:
        """How many releases there are."""
        return sum(self._counts.values())

    def __repr__(self) -> str:
        return f"PairCounts({self._counts!r})"
