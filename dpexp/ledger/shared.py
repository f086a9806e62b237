"""What a ledger asks of a budget that several runs share."""

from collections.abc import Sequence
from typing import Protocol

from dpexp import _validate
from dpexp.accounting import Phase

__all__ = ["BudgetSpentError", "SharedBudget"]


class BudgetSpentError(_validate.UserError):
    """One more release would pass the budget; it has not been made."""


class SharedBudget(Protocol):
    """A budget beside the run's own, asked before the run's own record is written."""

    def reserve(self, name: str, phases: Sequence[Phase]) -> None:
        """Charges releases durably, all or none, before anything of them is drawn.

        Args:
            name: What they are, such as `dp_pca` or `lots 11 to 20`.
            phases: Their events in order.

        Raises:
            BudgetSpentError: They would pass the budget; nothing was charged.
        """
        ...

    def give_back(self, name: str, phases: Sequence[Phase]) -> None:
        """Returns lots that were provably not drawn, under a filter that was declared beforehand."""
        ...
