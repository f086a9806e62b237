"""A filter for releases on all rows: adaptive noise at the price of fixed noise.

A release with noise multiplier σ is 1/σ-Gaussian-DP. Smith and Thakurta (2022), arXiv 2210.17520: the sum of
squares, compared with μ², is a filter for μ-GDP with the parameters of ordinary composition.
"""

import math
from typing import final

from dpexp.accounting.budget import Budget
from dpexp.accounting.events import Event, Relation
from dpexp.accounting.filters import BudgetExceededError, checked_limits
from dpexp.accounting.gaussian_profile import largest_gdp, squared_gdp

__all__ = ["GaussianFilter"]


@final
class GaussianFilter:
    """Admits Gaussian releases on all rows as long as Σ 1/σ² <= μ², where μ-GDP implies the budget.

    *Formal guarantees.* As `RenyiFilter`, for events without sampling of lots; it admits more.

    Args:
        budget: ε > 0 and δ.
        relation: The neighboring relation.
    """

    def __init__(self, *, budget: Budget, relation: Relation) -> None:
        epsilon, log_delta = checked_limits(budget)
        self.budget, self.relation = budget, Relation(relation)
        # 1e-13 is more than the roundings of `squared_gdp`.
        self._limit = largest_gdp(epsilon, log_delta) ** 2 * (1 - 1e-13)
        self._spent = 0.0

    def affords(self, event: Event) -> bool:
        """Whether the filter admits `event` as the next release. Ask before making it."""
        return self._after(event) <= self._limit

    def charge(self, event: Event) -> None:
        """Adds a release to what was spent.

        Raises:
            BudgetExceededError: The filter does not admit it.
            UnsupportedEventError: The event is not made of Gaussian releases on all rows.
        """
        after = self._after(event)
        if not after <= self._limit:
            raise BudgetExceededError(
                f"The filter for epsilon = {self.budget.epsilon}, delta = {self.budget.delta} does not admit "
                f"{event!r}.\nAsk affords(event) before every release, and stop when it says no."
            )
        self._spent = after

    def _after(self, event: Event) -> float:
        square = squared_gdp(event, self.relation)
        return math.nextafter(self._spent + square, math.inf) if square else self._spent
