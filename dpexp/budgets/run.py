"""`budget=run`: everything is fixed before the first lot, so that the cheapest composition holds."""

from dataclasses import dataclass
from typing import final

from dpexp.accounting import AnyAccountant
from dpexp.plan import PrivacyPlan

__all__ = ["FIXED", "RunBudget"]


@final
@dataclass(frozen=True, kw_only=True)
class RunBudget:
    """Plain composition of one run (Abadi et al., 2016, Theorem 2.1), by the configured accountant."""

    shared = False

    def solver(self, accountant: AnyAccountant) -> AnyAccountant:
        """The configured accountant."""
        return accountant

    def settle(self, draft: PrivacyPlan) -> PrivacyPlan:
        """The draft as it is."""
        return draft

    def join(self, plan: PrivacyPlan, *, label: str) -> None:
        """Nothing is shared."""

    def open(self, plan: PrivacyPlan, *, label: str) -> None:
        """Nothing is shared."""


FIXED = RunBudget()
"""The default."""
