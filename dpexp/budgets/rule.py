"""The interface of the `budget` config group."""

from typing import Protocol

from dpexp.accounting import AnyAccountant
from dpexp.budgets.share import Share
from dpexp.plan import PrivacyPlan

__all__ = ["BudgetRule"]


class BudgetRule(Protocol):
    """What a run's spending is held to, and what may be chosen from its results.

    Attributes:
        shared: Whether the runs on a data set share it.
    """

    shared: bool

    def solver(self, accountant: AnyAccountant) -> AnyAccountant:
        """What σ is solved with, given the configured accountant.

        Raises:
            UserError: The rule cannot hold what this accountant adds up.
        """
        ...

    def settle(self, draft: PrivacyPlan) -> PrivacyPlan:
        """The draft, with σ known, under a guarantee that this rule keeps.

        Raises:
            UserError: The plan's releases cannot be priced under the rule.
        """
        ...

    def join(self, plan: PrivacyPlan, *, label: str) -> Share | None:
        """The share of a run that goes on, which is asked for the rest block by block; None without.

        Raises:
            UserError: The budget's terms are not those on record.
        """
        ...

    def open(self, plan: PrivacyPlan, *, label: str) -> Share | None:
        """The run's share of a budget that others spend too, checked to hold the whole plan; None without.

        Raises:
            UserError: The plan does not fit into what is left. Nothing was spent.
        """
        ...
