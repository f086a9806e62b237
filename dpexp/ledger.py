"""The record of what a run has released, charged before it is released."""

from typing import final

from dpexp import _validate
from dpexp.accounting import Account, Event, PrivacyBound, Release
from dpexp.plan import Guarantee, StepPlan

__all__ = ["BudgetSpentError", "Ledger"]


class BudgetSpentError(_validate.UserError):
    """One more release would pass the budget; it has not been made."""


@final
class Ledger:
    """Counts lots and charges every release to the configured accountant and to those beside it.

    Attributes:
        lots: Lots charged so far.
        releases: Names of the releases charged before the lots.
        account: The configured accountant's; None without privacy.
        companions: Those of the accountants shown beside it.
    """

    def __init__(self, guarantee: Guarantee | None) -> None:
        self.lots = 0
        self.releases: list[str] = []
        self._guarantee = guarantee
        self.account: Account | None = None
        self.companions: list[Account] = []
        if guarantee is not None:
            self.account = guarantee.open_account(guarantee.accountant)
            self.companions = [guarantee.open_account(beside) for beside in guarantee.companions]

    def charge(self, release: Release) -> None:
        """Charges one release from all rows; call it before drawing the release's noise.

        Raises:
            BudgetSpentError: It would pass the budget.
        """
        self._charge(release.event, release.name)
        self.releases.append(release.name)

    def reserve(self, step: StepPlan) -> None:
        """Charges the next lot; call it before its noise is drawn.

        Raises:
            BudgetSpentError: It would pass the budget.
            ValueError: `step` is not the next one.
        """
        if step.index != self.lots:
            raise ValueError(f"The next lot is {self.lots}, found step {step.index}.")
        if step.event is not None:
            self._charge(step.event, f"lot {step.index + 1}")
        self.lots += 1

    def epsilon(self) -> PrivacyBound:
        """ε of all that has been charged, by the configured accountant, at the budget's δ."""
        if self.account is None:
            raise ValueError("A run without privacy has no ε.")
        return self.account.epsilon()

    def _charge(self, event: Event, name: str) -> None:
        if self.account is None:
            return
        if not self.account.affords(event):
            budget = self.account.budget
            raise BudgetSpentError(
                f"{name} would pass the budget ε = {budget.epsilon:g} at δ = {budget.delta:g}; "
                f"ε = {float(self.account.epsilon()):.6f} is spent. Nothing more was released."
            )
        for account in (self.account, *self.companions):
            account.charge(event)
