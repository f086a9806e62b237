"""Filter and odometer in the place of an accountant, so that plan, ledger and statement need to know neither.

They add up the same log moments as `MomentsAccountant`, for the same samplers; what they say of the sum is
what `filters` proves where later choices follow earlier outputs.
"""

import math
from dataclasses import dataclass, field
from typing import final

from dpexp import _validate
from dpexp.accounting.accountants import AbstractLogMomentAccountant, LogMoments
from dpexp.accounting.bounds import PrivacyBound, Quantity
from dpexp.accounting.budget import Budget
from dpexp.accounting.conversions import improved_bonus
from dpexp.accounting.events import Relation
from dpexp.accounting.filters import LAST_FILTER_ORDER, SIXTEEN_ORDERS, checked_limits, filter_budget
from dpexp.accounting.moments import Array

__all__ = ["FilterAccountant", "FilterOrders", "OdometerAccountant"]

# Relative; more than the rounding of a million additions in float64, charged to the private side.
_SAFETY = 1e-9


class _OfMoments(AbstractLogMomentAccountant):
    @property
    def _name_in_table(self) -> str:
        return "moments"

    @property
    def _bonus(self) -> Array:
        return improved_bonus(self._lambdas)


@final
@dataclass(frozen=True)
class FilterOrders(_OfMoments):
    """The orders that a filter can be given, before one is chosen: what σ is solved with.

    With T and σ fixed, a filter of the best order pays for what these orders prove.
    """

    name = "filter"
    orders: tuple[int, ...] = field(init=False, repr=False, default=tuple(range(1, LAST_FILTER_ORDER + 1)))

    def epsilon(self, cost: LogMoments, delta: float, relation: Relation) -> PrivacyBound:
        """As of the moments at these orders, with the improved conversion."""
        bound = super().epsilon(cost, delta, relation)
        return bound.with_value(float(bound) * (1 + 2 * _SAFETY))


@final
@dataclass(frozen=True, kw_only=True)
class FilterAccountant(_OfMoments):
    """The Rényi filter of one order fixed in advance (Feldman and Zrnic, 2021, arXiv 2008.11193).

    *Formal guarantees.* As long as a release is made only where ε after it is no more than the budget's, all
    releases together are (ε, δ), although each, and whether there is another, may depend on all earlier ones.

    Attributes:
        order: λ, chosen from what is public before the first release.
        budget: ε > 0 and δ.
    """

    name = "filter"
    order: int
    budget: Budget
    orders: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = _validate.integer("order", self.order, at_least=1)
        _validate.number("order", order, at_most=LAST_FILTER_ORDER)
        checked_limits(self.budget)
        object.__setattr__(self, "orders", (order,))

    @property
    def limit(self) -> float:
        """B(λ): what the log moments may add up to."""
        epsilon, log_delta = checked_limits(self.budget)
        budget = filter_budget(self.order, epsilon, log_delta)
        return budget - abs(budget) * _SAFETY

    def epsilon(self, cost: LogMoments, delta: float, relation: Relation) -> PrivacyBound:
        """The budget's ε, however much of it was used; ∞ where the filter has been passed.

        Raises:
            UserError: `delta` is not the budget's.
        """
        if delta != self.budget.delta:
            raise _validate.refuse("delta", delta, f"{self.budget.delta}, which the filter was made for")
        claimed = self.budget.epsilon if self._holds(cost) else math.inf
        assert claimed is not None
        return self._bound(claimed, relation, delta, 0).described(saturated=False)

    def delta(self, cost: LogMoments, epsilon: float, relation: Relation) -> PrivacyBound:
        """The budget's δ, at its ε or more; 1 at a smaller ε, and where the filter has been passed."""
        assert self.budget.epsilon is not None
        claimed = self.budget.delta if epsilon >= self.budget.epsilon and self._holds(cost) else 1.0
        return self._bound(claimed, relation, None, 0).described(saturated=False)

    def _holds(self, cost: LogMoments) -> bool:
        return bool(cost.alpha[0] <= self.limit)


@final
@dataclass(frozen=True)
class OdometerAccountant(_OfMoments):
    """`filters.RenyiOdometer` on the sixteen orders: a bound on the realized loss at all times at once."""

    name = "odometer"
    orders: tuple[int, ...] = field(init=False, repr=False, default=SIXTEEN_ORDERS)

    def epsilon(self, cost: LogMoments, delta: float, relation: Relation) -> PrivacyBound:
        """min_λ (A(λ) + log(K/δ))/λ for K orders; its quantity is a realized loss, not an ε."""
        delta = _validate.fraction("delta", delta)
        losses = (cost.alpha + math.log(len(self.orders)) - math.log(delta)) / self._lambdas
        best = int(losses.argmin())
        value = float(losses[best]) * (1 + _SAFETY) if cost.alpha.any() else 0.0
        return self._bound(value, relation, delta, best).described(quantity=Quantity.REALIZED_LOSS)
