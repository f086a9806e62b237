"""Composition theorems that know no more of a release than one (ε, δ) of it.

The moments accountant is measured against these in the paper's Figure 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting.accountant import AbstractAccountant, checked_epsilon, delta_from_log
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.coarsening import at_most
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.gaussian_profile import epsilon_of_gdp
from dpexp.accounting.pairs import GaussianPair, Pair, PairCounts
from dpexp.accounting.samplers import dominating_pairs

__all__ = [
    "StrongCompositionAccountant",
    "dwork_rothblum_vadhan",
    "kairouz_oh_viswanath",
    "naive_composition",
    "paper_strong_composition",
    "strong_composition_epsilon",
]

_SHARES = 1 / (1 + np.exp(np.linspace(-12, 7, 58)))  # of δ that the releases get; the theorem gets the rest
_UP = 1 + 1e-12
_MOST_PAIRS = 64


def naive_composition(epsilons: Sequence[float], deltas: Sequence[float]) -> tuple[float, float]:
    """(Σ ε, Σ δ): Dwork, McSherry, Nissim and Smith (2006) and Dwork et al. (2006)."""
    return float(sum(epsilons)) * _UP, float(sum(deltas)) * _UP


def dwork_rothblum_vadhan(epsilon: float, count: int, slack: float) -> float:
    """ε of `count` releases of (ε, ·) each, at δ = slack + Σ δ of the releases.

    Dwork, Rothblum and Vadhan (2010), Theorem III.3: ε√(2T log(1/slack)) + Tε(e^ε - 1). The loss of a release
    lies within ±ε and has mean at most ε(e^ε - 1), so the bound follows from Azuma's inequality.
    """
    with np.errstate(over="ignore"):
        mean = count * epsilon * float(np.expm1(epsilon))
    return (epsilon * float(np.sqrt(-2 * count * np.log(slack))) + mean) * _UP


def kairouz_oh_viswanath(epsilons: Sequence[float], counts: Sequence[int], slack: float) -> float:
    """ε of heterogeneous releases of (ε_i, ·), at δ = slack + Σ δ of the releases.

    Σ n_i ε_i tanh(ε_i/2) + √(2 log(1/slack) Σ n_i ε_i²), or Σ n_i ε_i if that is less: one of the forms in
    Kairouz, Oh and Viswanath (2017), arXiv 1311.0776. Randomized response with losses ±ε dominates any ε-DP
    release; its loss has mean ε tanh(ε/2), so the bound follows from Hoeffding's inequality.
    """
    each, times = np.asarray(epsilons, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    basic = float(times @ each)
    if not np.isfinite(basic):
        return np.inf
    mean, square = float(times @ (each * np.tanh(each / 2))), float(times @ each**2)
    return min(basic, mean + float(np.sqrt(-2 * np.log(slack) * square))) * _UP


def paper_strong_composition(
    *, sampling_probability: float, noise_multiplier: float, steps: int, delta: float
) -> PrivacyBound:
    """The strong composition curve of the paper's Figure 2, as it was drawn: a heuristic, not a bound.

    Its amplification ε₀ = qε' does not hold: log(1 + q(e^ε' - 1)) > qε' for q < 1. The certified curve is
    that of `StrongCompositionAccountant`.

    Args:
        sampling_probability: q in (0, 1].
        noise_multiplier: σ > 0.
        steps: T >= 1.
        delta: δ in (0, 1).
    """
    q = _validate.number("sampling_probability", sampling_probability, above=0, at_most=1)
    noise_multiplier = _validate.number("noise_multiplier", noise_multiplier, above=0)
    count, delta = _validate.integer("steps", steps, at_least=1), _validate.fraction("delta", delta)
    each, slack = delta / (2 * q * count), delta / 2
    unsampled = np.sqrt(2 * np.log(1.25 / each)) / noise_multiplier  # Dwork and Roth (2014), Theorem A.1
    epsilon = q * unsampled
    value = epsilon * np.sqrt(2 * count * np.log(1 / slack)) + count * epsilon**2
    return PrivacyBound(
        float(value),
        kind=Kind.HEURISTIC,
        accountant="paper_strong_composition",
        relation=Relation.ADD_OR_REMOVE_ONE,
        delta=delta,
    )


@final
@dataclass(frozen=True)
class StrongCompositionAccountant(AbstractAccountant[PairCounts]):
    """The certified curve: exact Gaussian profile, amplification that holds, Kairouz-Oh-Viswanath."""

    name = "strong_composition"
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
        return self._bound(strong_composition_epsilon(cost, delta), relation, delta)

    def delta(self, cost: PairCounts, epsilon: float, relation: Relation) -> PrivacyBound:
        """The smallest δ that this cost proves at `epsilon` >= 0, at most 1."""
        low, high, epsilon = math.log(1e-300), 0.0, checked_epsilon(epsilon)
        if strong_composition_epsilon(cost, 1e-300) <= epsilon:
            high = low
        while high - low > 1e-9:
            middle = (low + high) / 2
            within = strong_composition_epsilon(cost, math.exp(middle)) <= epsilon
            low, high = (low, middle) if within else (middle, high)
        return self._bound(delta_from_log(high) if cost else 0.0, relation, None)

    def _bound(self, value: float, relation: Relation, delta: float | None) -> PrivacyBound:
        return PrivacyBound(value, kind=self.kind, accountant=self.name, relation=relation, delta=delta)


def strong_composition_epsilon(cost: PairCounts, delta: float) -> float:
    """ε at δ of Gaussian and Poisson-sampled pairs, by the certified curve."""
    return _strong_composition_epsilon(cost, float(delta))


@lru_cache(maxsize=4096)
def _strong_composition_epsilon(cost: PairCounts, delta: float) -> float:
    if not cost:
        return 0.0
    few = at_most(cost, _MOST_PAIRS)
    releases = few.total_count
    best = np.inf
    for share in _SHARES.tolist():
        log_each = float(np.log(delta) + np.log(share) - np.log(releases))
        epsilons = [_one(pair, log_each) for pair in few]
        slack = delta * (1 - share) * (1 - 1e-12)
        best = min(best, kairouz_oh_viswanath(epsilons, list(few.values()), slack))
    return float(best)


def _one(pair: Pair, log_delta: float) -> float:
    """ε of one release at log δ: log(1 + q(e^ε' - 1)) with ε' that of the Gaussian at δ/q.

    Balle, Barthe and Gaboardi (2018), arXiv 1807.01647; derived in docs/theory/sampling.md, section 2.
    """
    q = 1.0 if isinstance(pair, GaussianPair) else pair.q  # type: ignore[union-attr]
    if pair.sigma < 1e-150:
        return np.inf
    log_inner = log_delta - float(np.log(q))
    if log_inner >= 0:
        return 0.0
    epsilon = epsilon_of_gdp(1 / pair.sigma * (1 + 1e-15), log_inner)
    amplified = float(np.logaddexp(np.log1p(-q), np.log(q) + epsilon)) if q < 1 else epsilon
    return max(amplified + 1e-15, 0.0) * _UP
