"""The certified tight accountant: the privacy loss distribution, discretized and composed with proof.

Proof of the bound: docs/theory/pld.md. At most 5e-4 above the exact ε in every row of the golden file (1 to
1e8 releases); not tight where a sampled pair has no grid (σ < 0.02, balls-and-bins), nor where δ is so large,
or the releases so few and weak, that ε is next to nothing.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting import certified
from dpexp.accounting.accountant import AbstractAccountant, checked_epsilon, delta_from_log
from dpexp.accounting.accountants import RenyiAccountant
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.coarsening import at_most
from dpexp.accounting.composition import StrongCompositionAccountant, strong_composition_epsilon
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.gaussian_profile import epsilon_of_gdp, log_delta_of_gdp
from dpexp.accounting.grids import SMALLEST_SIGMA, SampledPair, directions_of
from dpexp.accounting.one_release import one_release_of
from dpexp.accounting.pairs import GaussianPair, PairCounts, PoissonPair
from dpexp.accounting.saddle import Composition
from dpexp.accounting.samplers import dominating_pairs

__all__ = ["PLDAccountant", "compositions", "gaussian_variance", "has_grid"]

_MOST_PAIRS = 100


@final
@dataclass(frozen=True)
class PLDAccountant(AbstractAccountant[PairCounts]):
    """Tight for any number of releases with a grid; every figure is at most that of the accountant `rdp`."""

    name = "pld"
    kind = Kind.CERTIFIED

    @property
    def zero(self) -> PairCounts:
        """The cost of releasing nothing."""
        return PairCounts()

    def price(self, event: Event, relation: Relation) -> PairCounts:
        """The dominating pairs of the event.

        Raises:
            UnsupportedEventError: No bound is known here for a part of the event; it is named.
        """
        return dominating_pairs(self.name, event, relation)

    def epsilon(self, cost: PairCounts, delta: float, relation: Relation) -> PrivacyBound:
        """The smallest ε that this cost proves at `delta` in (0, 1)."""
        delta = _validate.fraction("delta", delta)
        by_moments = _RENYI.epsilon(_RENYI.cost_of(cost), delta, relation)
        tight = _epsilon(cost, math.nextafter(math.log(delta), -math.inf))
        return self._bound(min(tight, float(by_moments)), relation, delta)

    def delta(self, cost: PairCounts, epsilon: float, relation: Relation) -> PrivacyBound:
        """The smallest δ that this cost proves at `epsilon` >= 0, at most 1."""
        by_moments = _RENYI.delta(_RENYI.cost_of(cost), epsilon, relation)
        tight = delta_from_log(self.log_delta(cost, epsilon))
        return self._bound(min(tight, float(by_moments)), relation, None)

    def log_delta(self, cost: PairCounts, epsilon: float) -> float:
        """The smallest log δ that this cost proves at `epsilon` >= 0; -∞ if nothing was released."""
        return _log_delta(cost, checked_epsilon(epsilon))

    def _bound(self, value: float, relation: Relation, delta: float | None) -> PrivacyBound:
        return PrivacyBound(value, kind=self.kind, accountant=self.name, relation=relation, delta=delta)


_RENYI, _STRONG = RenyiAccountant(), StrongCompositionAccountant()
_ANY = Relation.ADD_OR_REMOVE_ONE  # a cost of pairs holds for its own relation


@lru_cache(maxsize=4096)
def _epsilon(cost: PairCounts, log_delta: float) -> float:
    variance, single = gaussian_variance(cost), one_release_of(cost)
    if single is not None:
        return certified.smallest_epsilon(single.log_delta_bound, log_delta, 1e-3)
    if not has_grid(cost):
        return _epsilon_without_grid(cost, log_delta)
    ways = compositions(at_most(cost, _MOST_PAIRS), variance)
    if not ways:
        return epsilon_of_gdp(float(np.sqrt(variance) * (1 + 1e-15)), log_delta)
    return max(certified.epsilon_of(way, log_delta) for way in ways)


def _epsilon_without_grid(cost: PairCounts, log_delta: float) -> float:
    """Where σ is too small for a grid, and moments are far too large, strong composition still holds."""
    if all(isinstance(pair, GaussianPair | PoissonPair) for pair in cost):
        return strong_composition_epsilon(cost, float(np.exp(log_delta)))
    return np.inf


def _log_delta_without_grid(cost: PairCounts, epsilon: float) -> float:
    """The same the other way, so that δ of ε of δ is δ."""
    if all(isinstance(pair, GaussianPair | PoissonPair) for pair in cost):
        return math.log(float(_STRONG.delta(cost, epsilon, _ANY)))
    return 0.0


@lru_cache(maxsize=4096)
def _log_delta(cost: PairCounts, epsilon: float) -> float:
    variance, single = gaussian_variance(cost), one_release_of(cost)
    if single is not None:
        return single.log_delta_bound(epsilon)
    if not has_grid(cost):
        return _log_delta_without_grid(cost, epsilon)
    ways = compositions(at_most(cost, _MOST_PAIRS), variance)
    if not ways:
        return log_delta_of_gdp(float(np.sqrt(variance) * (1 + 1e-15)), epsilon)
    return max(certified.log_delta_of(way, epsilon) for way in ways)


def gaussian_variance(cost: PairCounts) -> float:
    """Σ μ² of the Gaussian pairs, rounded up; ∞ where one has no noise."""
    parts = [n / pair.sigma**2 if pair.sigma > 1e-150 else np.inf for pair, n in _gaussians(cost)]
    return float(sum(parts)) * (1 + 1e-15 * (len(parts) + 4))


def _gaussians(cost: PairCounts) -> list[tuple[GaussianPair, int]]:
    return [(pair, n) for pair, n in cost.items() if isinstance(pair, GaussianPair)]


def has_grid(cost: PairCounts) -> bool:
    """Whether every sampled pair has a grid; else only its moments are known here."""
    return gaussian_variance(cost) < np.inf and all(
        isinstance(pair, GaussianPair) or (isinstance(pair, SampledPair) and pair.sigma >= SMALLEST_SIGMA)
        for pair in cost
    )


def compositions(cost: PairCounts, variance: float) -> tuple[Composition, ...]:
    """The sampled pairs of a cost, composed each way round; pairs with one way round join every way."""
    sampled = [(directions_of(pair), n) for pair, n in cost.items() if isinstance(pair, SampledPair)]
    ways = max((len(directions) for directions, _ in sampled), default=0)
    return tuple(
        Composition(sampled={d[min(way, len(d) - 1)]: n for d, n in sampled}, variance=variance)
        for way in range(ways)
    )
