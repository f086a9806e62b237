"""Filters and odometers: budgets for releases whose parameters are chosen from earlier outputs.

Notation: L is the privacy loss of the interaction up to a stop, α_s(λ) a bound on the log moment of release
s, fixed before that release is made, and A(λ) = Σ α_s(λ). For every λ > 0, exp(λL - A(λ)) is a nonnegative
supermartingale of mean at most 1, whichever of the two neighbors the outputs come from, since α bounds both
directions. Everything here follows from that:

*Filter.* Let the interaction stop while some order of a set fixed in advance still has A(λ) <= B(λ). From
(1 - e^(ε-L))₊ <= c(λ)·exp(λ(L-ε)), c(λ) = (1/(λ+1))·(λ/(λ+1))^λ, valid for every L and λ,

    δ <= Σ_λ c(λ) e^(-λε) E[e^(λL); A(λ) <= B(λ)] <= Σ_λ c(λ) exp(B(λ) - λε),

so that B(λ) = λε + log(w_λ δ) - log c(λ) with Σ w_λ = 1 keeps (ε, δ). One order with weight 1 is the Rényi
filter of Feldman and Zrnic (2021), arXiv 2008.11193, with the conversion of Canonne, Kamath and Steinke
(2020), arXiv 2004.00010v7, Proposition 12. "Any order within its own *unweighted* budget" is not a filter:
tests/accounting/test_filters.py holds an adversary that gets 1.78 δ out of it.

*Odometer.* By Ville's inequality, with probability at least 1-δ, at all times at once,
L <= min_λ (A(λ) + log(1/(w_λ δ)))/λ.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dpexp import _validate
from dpexp.accounting.accountants import MomentsAccountant
from dpexp.accounting.bounds import Kind, PrivacyBound, Quantity
from dpexp.accounting.budget import Budget, Phase
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.moments import Array

__all__ = [
    "LAST_FILTER_ORDER",
    "SIXTEEN_ORDERS",
    "BudgetExceededError",
    "RenyiFilter",
    "RenyiOdometer",
    "best_filter_order",
    "checked_limits",
    "checked_orders",
    "filter_budget",
    "filter_moments",
    "filter_moments_of",
    "tail_filter_budget",
]

SIXTEEN_ORDERS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 255)
LAST_FILTER_ORDER = SIXTEEN_ORDERS[-1]  # the largest that is tried where one order is chosen

_BLOCK, _FEW = 2048, 64  # phases priced together, and how many are worth it
_LARGEST_ORDER = 1024  # all moments up to the largest order are computed: a million terms
_SAFETY = 1e-13  # relative rounding error of the budgets, charged to the private side


class BudgetExceededError(_validate.UserError):
    """A release was charged that the filter does not admit."""


def filter_budget(order: int, epsilon: float, log_delta: float) -> float:
    """B(λ): what Σ α(λ) may reach so that the interaction stays (ε, δ), by the improved conversion.

    Args:
        order: λ >= 1.
        epsilon: ε > 0.
        log_delta: log δ < 0.

    Returns:
        λε + log δ + log(λ+1) - λ log(λ/(λ+1)), rounded down; negative where the order is of no use.
    """
    gain = math.log(order + 1) + order * math.log1p(1 / order)
    return _down(order * epsilon + log_delta + gain, order * epsilon - log_delta + gain)


def tail_filter_budget(order: int, epsilon: float, log_delta: float) -> float:
    """B(λ) = λε + log δ: the same by the tail bound, Abadi et al. (2016), Theorem 2.2. It admits less."""
    return _down(order * epsilon + log_delta, order * epsilon - log_delta)


def best_filter_order(planned: Sequence[Phase], budget: Budget, relation: Relation) -> int:
    """The order, of 1 to 255, under which a filter admits most of a planned schedule.

    The plan must not depend on the data. Choosing the order later, from outputs, voids the filter.

    Args:
        planned: The lots expected, in order.
        budget: ε > 0 and δ.
        relation: The neighboring relation.
    """
    epsilon, log_delta = checked_limits(budget)
    orders = range(1, LAST_FILTER_ORDER + 1)
    budgets = np.array([filter_budget(order, epsilon, log_delta) for order in orders])
    admitted = _lots_admitted(planned, budgets, relation, tuple(orders))
    left = np.divide(budgets - admitted.spent, np.abs(budgets), where=budgets != 0, out=np.zeros(len(orders)))
    return int(orders[int(np.lexsort((left, admitted.lots))[-1])])


@final
class RenyiFilter:
    """Admits releases, however they were chosen, as long as the interaction stays (ε, δ).

    *Formal guarantees.* If `affords(event)` is asked before every release, a release is made only when
    it answers yes, and is then charged, the whole interaction is (ε, δ)-differentially private although
    every event may depend on all earlier outputs. Orders and weights are fixed in advance.

    Args:
        budget: ε > 0 and δ.
        relation: The neighboring relation.
        orders: λ >= 1, increasing; one order costs nothing, K orders share δ equally among them.
    """

    def __init__(self, *, budget: Budget, relation: Relation, orders: tuple[int, ...]) -> None:
        epsilon, log_delta = checked_limits(budget)
        self.budget, self.relation, self.orders = budget, Relation(relation), checked_orders(orders)
        share = log_delta - math.log(len(self.orders))
        self._budgets = np.array([filter_budget(order, epsilon, share) for order in self.orders])
        self._spent = np.zeros(len(self.orders))

    def affords(self, event: Event) -> bool:
        """Whether the filter admits `event` as the next release. Ask before making it."""
        return bool(np.any(self._after(event) <= self._budgets))

    def charge(self, event: Event) -> None:
        """Adds a release to what was spent.

        Raises:
            BudgetExceededError: The filter does not admit it.
        """
        after = self._after(event)
        if not np.any(after <= self._budgets):
            raise BudgetExceededError(
                f"The filter for epsilon = {self.budget.epsilon}, delta = {self.budget.delta} does not admit "
                f"{event!r}.\nAsk affords(event) before every release, and stop when it says no."
            )
        self._spent = after

    def admits(self, event: Event) -> int:
        """How many more times `event` in a row would be admitted, at most 10¹⁵ (which stands for any)."""
        alpha = filter_moments(event, self.relation, self.orders)
        return int(np.max(_whole_lots(self._budgets - self._spent, alpha, 10**15), initial=0))

    def _after(self, event: Event) -> Array:
        return _add_up(self._spent, filter_moments(event, self.relation, self.orders))


@final
class RenyiOdometer:
    """Says at any time, whatever was chosen from earlier outputs, what has been spent.

    *Formal guarantees.* With probability at least 1-δ, the realized privacy loss is at most `epsilon()`
    at *every* time at once, also at a stop chosen from the outputs. It depends on the outputs, so it is not
    the ε of a mechanism, and a `Guarantee` does not quote it.

    Args:
        delta: δ in (0, 1).
        relation: The neighboring relation.
        orders: λ >= 1, increasing, fixed in advance; δ is shared equally among them.
    """

    def __init__(self, *, delta: float, relation: Relation, orders: tuple[int, ...] = SIXTEEN_ORDERS) -> None:
        self.delta, self.relation = _validate.fraction("delta", delta), Relation(relation)
        self.orders = checked_orders(orders)
        self._spent = np.zeros(len(self.orders))

    def charge(self, event: Event) -> None:
        """Adds a release that was made."""
        self._spent = _add_up(self._spent, filter_moments(event, self.relation, self.orders))

    def epsilon(self) -> PrivacyBound:
        """The bound on the realized privacy loss so far; 0 before the first release."""
        lambdas = np.asarray(self.orders, dtype=np.float64)
        price = math.log(len(self.orders)) - math.log(self.delta)
        losses = (self._spent + price * (1 + _SAFETY)) / lambdas * (1 + _SAFETY)
        best = int(np.argmin(losses))
        released = bool(np.any(self._spent > 0))
        return PrivacyBound(
            float(losses[best]) if released else 0.0,
            kind=Kind.CERTIFIED,
            accountant="odometer",
            relation=self.relation,
            delta=self.delta,
            quantity=Quantity.REALIZED_LOSS,
            order=self.orders[best] if released else None,
            saturated=released and best == len(self.orders) - 1,
        )


@dataclass(frozen=True)
class _Admitted:
    lots: Array
    spent: Array


def _lots_admitted(
    planned: Sequence[Phase], budgets: Array, relation: Relation, orders: tuple[int, ...]
) -> _Admitted:
    """How many lots each order alone admits, and its A(λ) after them, both of shape (K,)."""
    lots, spent = np.zeros(len(budgets)), np.zeros(len(budgets))
    running = np.ones(len(budgets), dtype=bool)
    for phase, alpha in zip(planned, filter_moments_of(planned, relation, orders), strict=True):
        fit = np.where(running, _whole_lots(budgets - spent, alpha, phase.charges), 0.0)
        lots += np.minimum(fit * phase.every, phase.lots)
        spent += fit * np.where(fit > 0, alpha, 0.0)
        running &= fit == phase.charges
    return _Admitted(lots, spent)


def _whole_lots(left: Array, alpha: Array, most: int) -> Array:
    """The largest n <= most with n·α <= left, elementwise; 0 where nothing is left."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fit = np.where(alpha > 0, np.floor(left / alpha), np.inf)
    return np.clip(np.where(left >= 0, fit, 0.0), 0.0, most)


def filter_moments(event: Event, relation: Relation, orders: tuple[int, ...]) -> Array:
    """The proven α of one event at the filter's orders, shape (K,)."""
    grid = MomentsAccountant(max_order=orders[-1])  # of every order up to the largest, cached
    alpha: Array = grid.price(event, relation).alpha[np.asarray(orders) - 1]
    return alpha


def filter_moments_of(
    phases: Sequence[Phase], relation: Relation, orders: tuple[int, ...]
) -> Iterator[Array]:
    """The same for one lot of each phase; long schedules are priced together, by chords from above."""
    if len(phases) <= _FEW:
        yield from (filter_moments(phase.event, relation, orders) for phase in phases)
        return
    grid, at = MomentsAccountant(max_order=orders[-1]), np.asarray(orders) - 1
    for start in range(0, len(phases), _BLOCK):
        events = [phase.event for phase in phases[start : start + _BLOCK]]
        yield from grid.price_many(events, relation)[:, at]


def _add_up(spent: Array, alpha: Array) -> Array:
    return np.where(alpha > 0, np.nextafter(spent + alpha, np.inf), spent)  # never below the true sum


def checked_orders(orders: Sequence[int]) -> tuple[int, ...]:
    """Orders as a filter takes them: whole numbers from 1 to 1024, increasing, at least one."""
    checked = tuple(_validate.integer("orders", order, at_least=1) for order in orders)
    if not checked or list(checked) != sorted(set(checked)) or checked[-1] > _LARGEST_ORDER:
        raise _validate.refuse("orders", orders, "increasing whole numbers from 1 to 1024, at least one")
    return checked


def checked_limits(budget: Budget) -> tuple[float, float]:
    """(ε, log δ) of a budget that sets both."""
    hint = "A filter stops at an ε: set privacy.epsilon."
    epsilon = _validate.number("privacy.epsilon", budget.epsilon, above=0, hint=hint)
    return epsilon, math.log(_validate.fraction("privacy.delta", budget.delta))


def _down(value: float, size: float) -> float:
    return value - _SAFETY * size
