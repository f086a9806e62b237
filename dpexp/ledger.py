"""The record of what a run has released, charged before it is released."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol, final

from dpexp import _validate
from dpexp.accounting import Account, Event, Phase, PrivacyBound, Release
from dpexp.plan import PrivacyPlan, StepPlan

__all__ = ["BudgetSpentError", "Ledger", "SharedBudget"]

_BLOCK = 64  # lots reserved at once from a shared budget


class BudgetSpentError(_validate.UserError):
    """One more release would pass the budget; it has not been made."""


class SharedBudget(Protocol):
    """A budget that other runs spend too."""

    def reserve(self, name: str, phases: Sequence[Phase]) -> None:
        """Charges lots, durably, before any of them is drawn.

        Raises:
            BudgetSpentError: They would pass the budget; nothing was charged.
        """
        ...

    def give_back(self, name: str, phases: Sequence[Phase]) -> None:
        """Gives back lots that were charged and provably not drawn."""
        ...


@final
class Ledger:
    """Counts lots and charges every release to the configured accountant and to those beside it.

    Attributes:
        lots: Lots charged so far.
        releases: Names of the releases charged before the lots.
        account: The configured accountant's; None without privacy.
        companions: Those of the accountants shown beside it.
        latest: The ε that was last asked for, and so cheap to show; None before.
    """

    def __init__(self, plan: PrivacyPlan, shared: SharedBudget | None = None) -> None:
        self._plan, self._shared = plan, shared
        self.lots = 0
        self.releases: list[str] = []
        self.account: Account | None = None
        self.companions: list[Account] = []
        self.latest: PrivacyBound | None = None
        self._priced, self._ahead = _events(plan), _events(plan)
        if plan.guarantee is not None:
            self.account = plan.guarantee.open_account(plan.guarantee.accountant)
            self.companions = [plan.guarantee.open_account(beside) for beside in plan.guarantee.companions]

    def charge(self, release: Release) -> None:
        """Charges one release from all rows; call it before drawing the release's noise.

        Raises:
            BudgetSpentError: It would pass the budget.
        """
        if self.account is not None and not self.account.affords(release.event):
            raise self._spent(release.name)
        if self._shared is not None:
            self._shared.reserve(release.name, [Phase(release.event, 1)])
        self._charge(release)
        self.releases.append(release.name)

    def reserve(self, step: StepPlan) -> None:
        """Charges the next lot; call it before its noise is drawn.

        The plan's T is what the budget was proven to pay for before the first lot: lot T+1 is refused, and
        every lot must release what it was priced as. Where the accountant is quick enough, the lot is also
        priced anew.

        Raises:
            BudgetSpentError: It would pass the budget, or all lots of the plan have been charged.
            ValueError: `step` is not the plan's next one.
        """
        if step.index >= self._plan.steps:
            raise self._spent(f"lot {step.index + 1}")
        if step != self._plan.step(self.lots):
            raise ValueError(f"The next lot is {self.lots} of the plan, found step {step.index}.")
        if self.account is not None:
            self._reserve(self.account, Release(f"lot {step.index + 1}", next(self._priced)), step)
        self.lots += 1

    def epsilon(self) -> PrivacyBound:
        """ε of all that has been charged, by the configured accountant, at the budget's δ."""
        if self.account is None:
            raise ValueError("A run without privacy has no ε.")
        self.latest = self.account.epsilon()
        return self.latest

    def _reserve(self, account: Account, priced: Release, step: StepPlan) -> None:
        if priced.event != step.event:
            raise RuntimeError(f"{priced.name} was priced as {priced.event}, but releases {step.event}.")
        if account.accountant.quick and not account.affords(priced.event):
            raise self._spent(priced.name)
        if self._shared is not None and self.lots % _BLOCK == 0:
            self._reserve_block(self._shared)
        self._charge(priced)

    def _reserve_block(self, shared: SharedBudget) -> None:
        block = list(itertools.islice(self._ahead, _BLOCK))
        phases = [Phase(event, len(list(lots))) for event, lots in itertools.groupby(block)]
        shared.reserve(f"lots {self.lots + 1}–{self.lots + len(block)}", phases)

    def _charge(self, release: Release) -> None:
        for account in (self.account, *self.companions):
            if account is not None:
                account.charge(release.event)

    def _spent(self, name: str) -> BudgetSpentError:
        words = f"{name} is not paid for by the plan of {self._plan.steps} lots"
        if self.account is None:
            return BudgetSpentError(f"{words}.")
        budget = self.account.budget
        limit = "" if budget.epsilon is None else f" within ε = {budget.epsilon:g} at δ = {budget.delta:g}"
        return BudgetSpentError(
            f"{words}{limit}; ε ≤ {self.epsilon().rounded_up(6)} (certified) is spent. "
            "Nothing more was released."
        )


def _events(plan: PrivacyPlan) -> Iterator[Event]:
    """The event that each lot was priced as."""
    if plan.guarantee is not None:
        for phase in plan.phases(plan.steps):
            yield from itertools.repeat(phase.event, phase.lots)
