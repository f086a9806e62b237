"""Accountants that add up log moments: the paper's, and the same with a tighter conversion."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting.accountant import AbstractAccountant, checked_epsilon, delta_from_log
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.conversions import (
    epsilons_from,
    improved_bonus,
    log_deltas_from,
    tail_bonus,
    total_variations,
)
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
    quick = True
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
        return self.cost_of(dominating_pairs(self._name_in_table, event, relation))

    def price_many(self, events: Sequence[Event], relation: Relation) -> Array:
        """α of each event, shape (N, K): `price` for long schedules of distinct events.

        Where thousands of σ share one q, α is interpolated in 1/σ² by chords, which are upper bounds since α
        is convex there, and about 1e-5 above.

        Raises:
            UnsupportedEventError: No bound is known here for a part of an event; it is named.
        """
        pairs = [dominating_pairs(self._name_in_table, event, relation) for event in events]
        single = [next(iter(counts)) for counts in pairs if len(counts) == 1 and counts.total_count == 1]
        if len(single) == len(pairs):
            return log_moments_of_many(single, self.orders)
        return np.array([composed_log_moments(counts, self.orders) for counts in pairs])

    def cost_of(self, pairs: PairCounts) -> LogMoments:
        """The cost of a composition of dominating pairs."""
        return LogMoments(composed_log_moments(pairs, self.orders))

    def epsilon(self, cost: LogMoments, delta: float, relation: Relation) -> PrivacyBound:
        """The smallest ε that this cost proves at `delta` in (0, 1)."""
        delta = _validate.fraction("delta", delta)
        if self._total_variation(cost) <= delta:
            return self._bound(0.0, relation, delta, None)
        candidates = epsilons_from(cost.alpha, self._lambdas, self._bonus, float(np.log(delta)))
        best = int(np.argmin(candidates))
        return self._bound(max(float(candidates[best]), 0.0), relation, delta, best)

    def delta(self, cost: LogMoments, epsilon: float, relation: Relation) -> PrivacyBound:
        """The smallest δ that this cost proves at `epsilon` >= 0, at most 1."""
        log_deltas = log_deltas_from(cost.alpha, self._lambdas, self._bonus, checked_epsilon(epsilon))
        best = int(np.argmin(log_deltas))
        value = delta_from_log(float(log_deltas[best]))
        zero_test = self._total_variation(cost)
        if zero_test <= value:
            return self._bound(zero_test, relation, None, None)
        return self._bound(value, relation, None, best)

    def epsilons(self, costs: Array, delta: float) -> Array:
        """`epsilon` for many costs at once: α of shape (T, K) to ε of shape (T,)."""
        delta = _validate.fraction("delta", delta)
        candidates = epsilons_from(costs, self._lambdas, self._bonus, float(np.log(delta))).min(axis=1)
        free = total_variations(costs, self._lambdas) <= delta
        return np.where(free, 0.0, np.maximum(candidates, 0.0))

    def _total_variation(self, cost: LogMoments) -> float:
        return float(total_variations(cost.alpha[np.newaxis], self._lambdas)[0])

    @property
    def _name_in_table(self) -> str:
        """The accountant of the table of samplers whose log moments these are."""
        return self.name

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
        return tail_bonus(self._lambdas)


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
        return _improved(self.orders)


@lru_cache(maxsize=8)
def _as_array(orders: tuple[int, ...]) -> Array:
    return np.asarray(orders, dtype=np.float64)


@lru_cache(maxsize=8)
def _improved(orders: tuple[int, ...]) -> Array:
    return improved_bonus(_as_array(orders))
