"""The terms that a data-set budget was opened under, and what they admit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

from dpexp import _validate
from dpexp.accounting import SIXTEEN_ORDERS, Event, Phase, Relation
from dpexp.accounting.filters import checked_orders, filter_budget, filter_moments, filter_moments_of
from dpexp.budgets.spending import Moments, Spending

__all__ = ["Priced", "Totals"]

_SAFETY = 1e-12


@final
@dataclass(frozen=True)
class Priced:
    """`lots` lots that each have the log moments `moments`."""

    event: Event
    lots: int
    moments: Moments


@final
@dataclass(frozen=True, kw_only=True)
class Totals:
    """ε, δ, relation and orders, fixed when the budget is opened.

    *Formal guarantees.* With ε: releases that are made only after `admits` said yes to all reserved so far
    are (ε, δ) together, although each may depend on all earlier ones, whichever run made them: the filter of
    `accounting.filters`, whose orders share δ equally. Without: `spent_epsilon` bounds the realized loss.

    Attributes:
        epsilon: ε > 0, or None for no limit.
        delta: δ in (0, 1).
        relation: The neighboring relation.
        orders: λ >= 1, increasing.
    """

    epsilon: float | None
    delta: float
    relation: Relation
    orders: tuple[int, ...] = SIXTEEN_ORDERS

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", _validate.number("budget.epsilon", self.epsilon, above=0))
        object.__setattr__(self, "delta", _validate.fraction("budget.delta", self.delta))
        object.__setattr__(self, "relation", Relation(self.relation))
        object.__setattr__(self, "orders", checked_orders(self.orders))

    @cached_property
    def limits(self) -> tuple[float, ...]:
        """B(λ) of each order; ∞ without a limit."""
        if self.epsilon is None:
            return (math.inf,) * len(self.orders)
        return tuple(filter_budget(order, self.epsilon, self._log_share) for order in self.orders)

    def admits(self, spent: Spending) -> bool:
        """Whether a total is within the budget: at some order within that order's own."""
        if self.epsilon is None:
            return True
        return any(
            total is not None and total <= limit for total, limit in zip(spent.sums, self.limits, strict=True)
        )

    def price(self, event: Event) -> Moments:
        """α(λ) of one event at the orders."""
        return tuple(filter_moments(event, self.relation, self.orders).tolist())

    def priced(self, phases: Sequence[Phase]) -> list[Priced]:
        """Each phase with its price; of long schedules from above, by about 1e-5."""
        moments = filter_moments_of(phases, self.relation, self.orders)
        return [
            Priced(phase.event, phase.lots, tuple(found.tolist()))
            for phase, found in zip(phases, moments, strict=True)
        ]

    def spent_after(self, spent: Spending, priced: Iterable[Priced]) -> Spending:
        """The total after more lots."""
        for part in priced:
            spent = spent.plus(part.moments, part.lots)
        return spent

    def lots_within(self, spent: Spending, priced: Sequence[Priced]) -> int:
        """How many of these lots, in order, are within the budget on top of what was spent."""
        if self.epsilon is None:
            return sum(part.lots for part in priced)
        columns = zip(spent.sums, self.limits, range(len(self.orders)), strict=True)
        return max(_lots_at(total, limit, priced, column) for total, limit, column in columns)

    def spent_epsilon(self, spent: Spending) -> float:
        """How much was spent, as an ε at the budget's δ, rounded up.

        With a limit: the ε whose filter would just have admitted the total. It is a measure and no claim,
        since the claim is the ε that the budget was opened with. Without: a certified bound on the realized
        loss, which is no ε of a mechanism.
        """
        if spent == Spending.nothing(len(self.orders)):
            return 0.0
        found = zip(self.orders, spent.rounded_up, strict=True)
        return max(min(self._epsilon_at(order, alpha) for order, alpha in found), 0.0)

    def spent_fraction(self, spent: Spending) -> float | None:
        """The part of the budget that is used, at the order where it is least; None without a limit."""
        if self.epsilon is None:
            return None
        parts = [
            float(alpha / limit)
            for alpha, limit in zip(spent.rounded_up, self.limits, strict=True)
            if limit > 0
        ]
        return min(parts, default=math.inf)

    @property
    def in_words(self) -> str:
        """All four, as part of a sentence."""
        limit = "no limit on ε" if self.epsilon is None else f"ε = {self.epsilon:g}"
        at = f"orders λ = {', '.join(map(str, self.orders))}"
        return f"{limit} at δ = {self.delta:g}, {self.relation}, {at}"

    @property
    def _log_share(self) -> float:
        return math.log(self.delta) - math.log(len(self.orders))

    def _epsilon_at(self, order: int, alpha: float) -> float:
        gain = 0.0 if self.epsilon is None else math.log(order + 1) + order * math.log1p(1 / order)
        return (alpha - self._log_share - gain) / order * (1 + _SAFETY) + _SAFETY


def _lots_at(total: Fraction | None, limit: float, priced: Sequence[Priced], column: int) -> int:
    """How many of the lots one order alone admits."""
    if total is None or total > limit:
        return 0
    left, admitted = Fraction(limit) - total, 0
    for part in priced:
        alpha = part.moments[column]
        if math.isinf(alpha):
            return admitted
        fit = part.lots if alpha == 0 else min(part.lots, int(left // Fraction(alpha)))
        admitted += fit
        if fit < part.lots:
            return admitted
        left -= fit * Fraction(alpha)
    return admitted
