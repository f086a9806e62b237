"""Accountants that add up log moments: the paper's, and the same with a tighter conversion."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting.accountant import AbstractAccountant
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.moments import Array
from dpexp.accounting.pair_moments import composed_log_moments, log_moments_of_many
from dpexp.accounting.pairs import PairCounts
from dpexp.accounting.samplers import dominating_pairs

__all__ = [
    "AbstractLogMomentAccountant",
    "LogMoments",
    "MomentsAccountant",
    "RenyiAccountant",
]

LAST_ORDER_OF_THE_PAPER = 32  # Abadi et al. (2016), section 4: "λ <= 32"


@dataclass(frozen=True, eq=False)
class LogMoments:
    """The cost of a composition: total α(λ) on a fixed grid of orders, shape (K,).

    Composition is addition (Abadi et al., 2016, Theorem 2.1).
    """

    alpha: Array

    def __add__(self, other: "LogMoments") -> "LogMoments":
        return LogMoments(self.alpha + other.alpha)

    def __rmul__(self, count: int) -> "LogMoments":
        return self if count == 1 else LogMoments(_times(count, self.alpha))


def _times(count: int, alpha: Array) -> Array:
    return np.zeros_like(alpha) if count == 0 else count * alpha  # 0 · ∞ is 0: nothing was released


class AbstractLogMomentAccountant(AbstractAccountant[LogMoments]):
    """Adds up log moments on a grid of integer orders; subclasses fix grid and conversion."""

    kind = Kind.CERTIFIED
    orders: tuple[int, ...]

    @property
    @abstractmethod
    def _bonus(self) -> Array:
        """What the conversion saves against the tail bound: ε = min_λ (α + log(1/δ) - bonus)/λ, (K,)."""

    @property
    def zero(self) -> LogMoments:
        """The cost of releasing nothing."""
        return LogMoments(np.zeros(len(self.orders)))

    def price(self, event: Event, relation: Relation) -> LogMoments:
        """The cost of one event.

        Args:
            event: What is released.
            relation: The neighboring relation to price for.

        Returns:
            α(λ) on this accountant's orders, a proven upper bound.

        Raises:
            UnsupportedEventError: No bound is known here for a part of the event; it is named.
        """
        return self.cost_of(dominating_pairs(self.name, event, relation))

    def price_many(self, events: Sequence[Event], relation: Relation) -> Array:
        """α of each event, shape (N, K): `price` for long schedules of distinct events.

        Where thousands of σ share one q, α is interpolated in 1/σ² by chords, which are upper bounds since α
        is convex there, and about 1e-5 above.

        Raises:
            UnsupportedEventError: No bound is known here for a part of an event; it is named.
        """
        pairs = [dominating_pairs(self.name, event, relation) for event in events]
        single = [next(iter(counts)) for counts in pairs if len(counts) == 1 and counts.total_count == 1]
        if len(single) == len(pairs):
            return log_moments_of_many(single, self.orders)
        return np.array([composed_log_moments(counts, self.orders) for counts in pairs])

    def cost_of(self, pairs: PairCounts) -> LogMoments:
        """The cost of a composition of dominating pairs."""
        return LogMoments(composed_log_moments(pairs, self.orders))

    def epsilon(self, cost: LogMoments, delta: float, relation: Relation) -> PrivacyBound:
        """The smallest ε that this cost proves at `delta` in (0, 1)."""
        if _total_variation(self._lambdas, cost.alpha) <= delta:
            return self._bound(0.0, relation, delta, None)
        candidates = (cost.alpha - np.log(delta) - self._bonus) / self._lambdas
        best = int(np.argmin(candidates))
        return self._bound(max(float(candidates[best]), 0.0), relation, delta, best)

    def delta(self, cost: LogMoments, epsilon: float, relation: Relation) -> PrivacyBound:
        """The smallest δ that this cost proves at `epsilon` >= 0, at most 1."""
        log_deltas = cost.alpha - self._lambdas * epsilon - self._bonus
        best = int(np.argmin(log_deltas))
        value = float(np.exp(min(log_deltas[best], 0.0)))
        zero_test = _total_variation(self._lambdas, cost.alpha)
        if zero_test <= value:
            return self._bound(zero_test, relation, None, None)
        return self._bound(value, relation, None, best)

    def epsilons(self, costs: Array, delta: float) -> Array:
        """`epsilon` for many costs at once: α of shape (T, K) to ε of shape (T,)."""
        candidates = np.min((costs - np.log(delta) - self._bonus) / self._lambdas, axis=1)
        free = _total_variations(self._lambdas, costs) <= delta
        return np.where(free, 0.0, np.maximum(candidates, 0.0))

    @property
    def _lambdas(self) -> Array:
        return _as_array(self.orders)

    def _bound(self, value: float, relation: Relation, delta: float | None, best: int | None) -> PrivacyBound:
        return PrivacyBound(
            value,
            kind=self.kind,
            accountant=self.name,
            relation=relation,
            delta=delta,
            order=None if best is None else self.orders[best],
            saturated=best == len(self.orders) - 1,
        )


@final
@dataclass(frozen=True)
class MomentsAccountant(AbstractLogMomentAccountant):
    """The paper's accountant: λ = 1…32 and the tail bound of Theorem 2.2.

    Attributes:
        max_order: The largest λ, 1 to 4096. ε never falls below log(1/δ)/max_order.
    """

    name = "moments"
    max_order: int = LAST_ORDER_OF_THE_PAPER
    orders: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        last = _validate.integer("accountant.max_order", self.max_order, at_least=1)
        _validate.number("accountant.max_order", last, at_most=4096)
        object.__setattr__(self, "orders", tuple(range(1, last + 1)))

    @property
    def _bonus(self) -> Array:
        # Abadi et al. (2016), Theorem 2.2: δ = min_λ exp(α(λ) - λε).
        return np.zeros(len(self.orders))


@final
@dataclass(frozen=True)
class RenyiAccountant(AbstractLogMomentAccountant):
    """The same moments on a wide grid of orders, with the improved conversion.

    Orders are 1…64 and then about 5 % apart up to 4096, so that small budgets do not saturate.
    """

    name = "rdp"
    orders: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        wide = np.unique(np.rint(np.geomspace(64, 4096, 86)).astype(int))
        object.__setattr__(self, "orders", (*range(1, 64), *wide.tolist()))

    @property
    def _bonus(self) -> Array:
        # Canonne, Kamath and Steinke (2020), arXiv 2004.00010v7, Proposition 12, at Rényi order λ+1:
        # ε = (α + log(1/δ) - log(λ+1))/λ + log(λ/(λ+1)).
        return _improved_conversion(self.orders)


@lru_cache(maxsize=8)
def _as_array(orders: tuple[int, ...]) -> Array:
    return np.asarray(orders, dtype=np.float64)


@lru_cache(maxsize=8)
def _improved_conversion(orders: tuple[int, ...]) -> Array:
    lambdas = _as_array(orders)
    return np.log(lambdas + 1) + lambdas * np.log1p(1 / lambdas)


def _total_variation(lambdas: Array, alpha: Array) -> float:
    return float(_total_variations(lambdas, alpha[np.newaxis])[0])


def _total_variations(lambdas: Array, alphas: Array) -> Array:
    """A bound on the total variation distance, and so on δ at ε = 0; shape (T, K) to (T,).

    α(λ)/λ is a Rényi divergence of order above 1 and bounds Kullback-Leibler κ; then Pinsker and
    Bretagnolle-Huber: TV <= min(√(κ/2), √(1 - e^(-κ))).
    """
    kappa = np.min(alphas / lambdas, axis=1)
    tv: Array = np.sqrt(np.minimum(kappa / 2, -np.expm1(-kappa)))
    return tv
