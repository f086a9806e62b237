"""`Ledger`: what a run has charged; asked before every release."""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self, final

from dpexp.accounting import NOTHING, Account, Event, Phase, PrivacyBound, Release, lots_within
from dpexp.ledger.entry import EntryKind
from dpexp.ledger.journal import Journal, LedgerError
from dpexp.ledger.pace import Pace
from dpexp.ledger.shared import BudgetSpentError, SharedBudget
from dpexp.ledger.spending import (
    Spending,
    declares_filter,
    digest_of,
    phases_besides,
    spending_of,
    torn_fields,
)
from dpexp.plan import PrivacyPlan, StepPlan

__all__ = ["Ledger"]


@final
class Ledger:
    """Counts lots and charges every release to the configured accountant and to those beside it.

    With a journal (`keep`, `resumed`) every charge is durable before it is drawn: one-time releases each,
    lots in blocks ahead.

    Attributes:
        plan: The run's plan; after a crash that cost too much, with a smaller T than it started with.
        steps: Optimizer steps that the parameters have taken or are taking.
        forfeited_lots: Lots reserved and not in the parameters: lost in a crash, or left of a block.
        lost: All that was charged and is in no model: those lots, and releases that are made anew.
        releases: Names of the releases charged before the lots.
        account: The configured accountant's; None without privacy.
        companions: Those of the accountants shown beside it.
        latest: The ε that was last asked for, and so cheap to show; None before.
    """

    def __init__(self, plan: PrivacyPlan, *, shared: SharedBudget | None = None) -> None:
        self.plan = plan
        self.steps = 0
        self.forfeited_lots = 0
        self.lost: Sequence[Phase] = ()
        self.releases: list[str] = []
        self.account: Account | None = None
        self.companions: list[Account] = []
        self.latest: PrivacyBound | None = None
        self._shared = None if plan.guarantee is None else shared
        self._journal: Journal | None = None
        self._pace = Pace()
        self._reserved = 0  # the step after the last of the block in hand
        self._priced = _events(plan, 0)
        if plan.guarantee is not None:
            self.account = plan.guarantee.open_account(plan.guarantee.accountant)
            self.companions = [plan.guarantee.open_account(beside) for beside in plan.guarantee.companions]

    @classmethod
    def resumed(
        cls,
        plan: PrivacyPlan,
        journal: Journal,
        *,
        steps: int,
        fitted: bool,
        shared: SharedBudget | None = None,
    ) -> Self:
        """The ledger of a run that goes on from a checkpoint; a torn end is charged and repaired.

        Everything ever reserved stays charged. Where the rest of the budget does not pay for all of T any
        more, T shrinks to what it pays for.

        Args:
            plan: The plan that the run started with.
            journal: Its entries.
            steps: Optimizer steps in the checkpoint's parameters; 0 without a checkpoint.
            fitted: Whether the one-time releases are at hand and not made again.
            shared: A budget that other runs share.

        Raises:
            LedgerError: The entries do not cover the checkpoint's steps.
            BudgetSpentError: Nothing is left to train with, and nothing was trained.
        """
        ledger = cls(plan, shared=shared)
        if journal.torn:
            journal.append(EntryKind.TORN, **torn_fields(journal.entries, plan))
        try:
            spending = spending_of(journal.entries, plan)
            ledger.lost = phases_besides(spending, plan, steps=steps, fitted=fitted)
        except ValueError as error:
            raise LedgerError(f"{journal.path}: the ledger does not fit its run: {error}") from error
        ledger._take_over(spending, steps, fitted)
        to_come = 0 if fitted or plan.guarantee is None else len(plan.guarantee.releases)
        journal.append(EntryKind.RESUMED, first=steps, count=to_come, most_next=1)
        ledger._journal = journal
        return ledger

    def keep(self, journal: Journal) -> None:
        """Makes every charge from here on durable in `journal`, which is that of a new run."""
        if self.steps or self.releases:
            raise RuntimeError("A ledger is kept from before its first charge, or not at all.")
        self._journal = journal

    @property
    def lots(self) -> int:
        """Lots charged: optimizer steps and forfeited lots. It only grows, also over resumptions."""
        return self.steps + self.forfeited_lots

    @property
    def declares_filter(self) -> bool:
        """Whether what was reserved and not drawn may be returned."""
        return declares_filter(self.plan)

    @property
    def journal(self) -> Journal | None:
        """Where charges are made durable; None where they are not."""
        return self._journal

    def charge(self, release: Release) -> None:
        """Charges one release from all rows; call it before drawing the release's noise.

        Raises:
            BudgetSpentError: It would pass the budget.
            LedgerError: It could not be made durable.
        """
        if self.account is not None:
            if not self.account.affords(release.event):
                raise self._spent(release.name)
            if self._shared is not None:
                self._shared.reserve(release.name, [Phase(release.event, 1)])
            if self._journal is not None:
                digest = digest_of(release.name)
                self._journal.append(EntryKind.RELEASE, text=release.name, digest=digest)
        self._charge(release.event)
        self.releases.append(release.name)

    def reserve(self, step: StepPlan) -> None:
        """Charges the next lot; call it before its noise is drawn.

        The plan's T is what the budget was proven to pay for before the first lot: lot T+1 is refused, and
        every lot must release what it was priced as. Where the accountant is quick enough, the lot is also
        priced anew.

        Raises:
            BudgetSpentError: It would pass the budget, or all lots of the plan have been charged.
            LedgerError: It could not be made durable.
            ValueError: `step` is not the plan's next one.
        """
        if step.index >= self.plan.steps:
            raise self._spent(f"lot {step.index + 1}")
        if step != self.plan.step(self.steps):
            raise ValueError(f"The next lot is {self.steps} of the plan, found step {step.index}.")
        priced = None
        if self.account is not None:
            priced = Release(f"lot {step.index + 1}", next(self._priced))
            self._check(self.account, priced, step)
        if step.index >= self._reserved:
            self._reserve_block(step.index)
        if priced is not None:
            self._charge(priced.event)
        self.steps += 1

    @property
    def undrawn_lots(self) -> int:
        """What is left of the block in hand: charged, and not drawn."""
        return max(0, self._reserved - self.steps)

    def give_back(self) -> None:
        """Returns what is left of the block in hand, none of which was drawn.

        Raises:
            RuntimeError: The plan declared no filter: the decision to stop would be for free.
        """
        if not self.declares_filter:
            raise RuntimeError("Only under a filter declared beforehand can lots be returned.")
        first, count = self.steps, self.undrawn_lots
        if count == 0:
            return
        if self._journal is not None:
            self._journal.append(EntryKind.RETURNED, first=first, count=count)
        if self._shared is not None:
            phases = list(self.plan.phases(first + count, first=first))
            self._shared.give_back(_block_name(first, count), phases)
        self._reserved = first

    def finish(self) -> None:
        """Notes that the run came to its end."""
        if self._journal is not None:
            self._journal.append(EntryKind.FINISHED, first=self.steps)

    def epsilon(self) -> PrivacyBound:
        """ε of all that has been charged, by the configured accountant, at the budget's δ."""
        if self.account is None:
            raise ValueError("A run without privacy has no ε.")
        self.latest = self.account.epsilon()
        return self.latest

    def _take_over(self, spending: Spending, steps: int, fitted: bool) -> None:
        """Charges all that was reserved before, and shortens the plan to what is left."""
        self.steps = self._reserved = steps
        self.forfeited_lots = spending.lots - steps
        guarantee = self.plan.guarantee
        if guarantee is not None:
            kept = [Phase(release.event, 1) for release in guarantee.releases] if fitted else []
            for phase in (*kept, *self.lost, *self.plan.phases(steps)):
                self._charge(phase.event, phase.charges)
            for account in self._accounts():
                account.settle()
            self.releases = list(spending.releases.elements())
            self.plan = self._shortened([] if fitted else [release.event for release in guarantee.releases])
        self._priced = _events(self.plan, steps)

    def _shortened(self, to_come: Sequence[Event]) -> PrivacyPlan:
        """The plan with the T that the rest of the budget pays for."""
        assert self.account is not None
        account = copy.copy(self.account)
        for event in to_come:
            account.charge(event)
        rest = _rest(self.plan, self.steps)
        steps = self.steps + lots_within(account, rest)
        if steps == 0:
            raise self._spent("lot 1")
        return replace(self.plan, steps=steps)

    def _check(self, account: Account, priced: Release, step: StepPlan) -> None:
        if priced.event != step.event:
            raise RuntimeError(f"{priced.name} was priced as {priced.event}, but releases {step.event}.")
        if account.accountant.quick and not account.affords(priced.event):
            raise self._spent(priced.name)

    def _reserve_block(self, first: int) -> None:
        """Makes the next lots durable, as many as the pace says and the plan still has."""
        count = self._paid_for(first, min(self._pace.next_size(), self.plan.steps - first))
        if self._journal is not None:
            began = time.monotonic()
            most_next = self._pace.most_after(count)
            self._journal.append(EntryKind.BLOCK, first=first, count=count, most_next=most_next)
            self._pace.wrote(count, time.monotonic() - began)
        self._reserved = first + count

    def _paid_for(self, first: int, count: int) -> int:
        """How many of `count` lots the shared budget takes: all, or half as often as it must be."""
        if self._shared is None:
            return count
        try:
            phases = list(self.plan.phases(first + count, first=first))
            self._shared.reserve(_block_name(first, count), phases)
        except BudgetSpentError:
            if count == 1:
                raise
            return self._paid_for(first, count // 2)
        return count

    def _charge(self, event: Event, times: int = 1) -> None:
        for account in self._accounts():
            account.charge(event, times)

    def _accounts(self) -> list[Account]:
        return [] if self.account is None else [self.account, *self.companions]

    def _spent(self, name: str) -> BudgetSpentError:
        words = f"{name} is not paid for by the plan of {self.plan.steps} lots"
        if self.account is None:
            return BudgetSpentError(f"{words}.")
        budget = self.account.budget
        limit = "" if budget.epsilon is None else f" within ε = {budget.epsilon:g} at δ = {budget.delta:g}"
        return BudgetSpentError(
            f"{words}{limit}; ε ≤ {self.epsilon().rounded_up(6)} (certified) is spent. "
            "Nothing more was released."
        )


def _block_name(first: int, count: int) -> str:
    return f"lot {first + 1}" if count == 1 else f"lots {first + 1} to {first + count}"


def _events(plan: PrivacyPlan, first: int) -> Iterator[Event]:
    """What each lot from `first` on was priced as; of an epoch that is priced whole, its first lot."""
    if plan.guarantee is not None:
        for phase in _rest(plan, first):
            yield from phase.events()


def _rest(plan: PrivacyPlan, first: int) -> Iterator[Phase]:
    """The lots from `first` on; those of an epoch that has been paid for cost nothing more."""
    aligned = min(first + -first % plan.lots_per_charge, plan.steps)
    if aligned > first:
        yield Phase(NOTHING, aligned - first)
    yield from plan.phases(plan.steps, first=aligned)
