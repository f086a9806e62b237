"""`Share`: one run's part of a data-set budget, reserved before each release and each block of lots."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from dpexp.accounting import BudgetTerms, Phase
from dpexp.budgets.record import BudgetRecord
from dpexp.budgets.store import BudgetStore
from dpexp.budgets.totals import Priced, Totals

__all__ = ["Share"]


@final
@dataclass(frozen=True, kw_only=True)
class Share:
    """A `ledger.SharedBudget`.

    Attributes:
        store: Where the budget is.
        budget_id: `data.budget_id`.
        totals: The terms on record.
        run: This run's name in the store.
    """

    store: BudgetStore
    budget_id: str
    totals: Totals
    run: str

    def reserve(self, name: str, phases: Sequence[Phase]) -> None:
        """Charges lots to the budget, on disk before it returns; call it before any of them is drawn.

        Args:
            name: What they are called in the record ("lots 1–64").
            phases: What they release.

        Raises:
            BudgetRefusedError: The total would be passed; nothing was reserved.
            BudgetStoreError: The store cannot be used; draw nothing.
        """
        self.store.reserve(self.budget_id, self.run, name, [self._priced(phase) for phase in phases])

    def give_back(self, name: str, phases: Sequence[Phase]) -> None:
        """Gives back lots of the last block that were provably not drawn.

        Raises:
            ValueError: This run has not reserved them.
        """
        lots: Counter[str] = Counter()
        for phase in phases:
            lots[repr(phase.event)] += phase.lots
        self.store.give_back(self.budget_id, self.run, name, lots)

    def attach(self, mlflow_run: str) -> None:
        """Says which MLflow run this is."""
        self.store.name_run(self.run, mlflow_run)

    def record_digest(self, digest: str) -> None:
        """Enters the training rows, by a digest under `digest_key`.

        Raises:
            BudgetRefusedError: They are known under another budget.
        """
        self.store.record_digest(self.budget_id, self.run, digest)

    @cached_property
    def digest_key(self) -> bytes:
        """The store's secret for digests."""
        return self.store.digest_key()

    def metrics(self) -> dict[str, float]:
        """What MLflow shows of the budget; the store alone counts."""
        found, _, _ = self.store.read(self.budget_id)
        assert found is not None
        return budget_metrics(found)

    @property
    def terms(self) -> BudgetTerms:
        """For the plan's guarantee."""
        return BudgetTerms(name="dataset", in_words=self._in_words, statement=self._statement)

    @property
    def _in_words(self) -> str:
        return f"all runs on {self.budget_id!r} together: {_limit(self.totals)} (task=budget shows it)"

    @property
    def _statement(self) -> str:
        if self.totals.epsilon is None:
            return (
                f"This run was also charged to the odometer of the data set {self.budget_id!r}, which sets "
                "no limit: what all its runs say together is bounded by what task=budget shows, and no less."
            )
        orders = ", ".join(map(str, self.totals.orders))
        return (
            f"The ε above is that of this run alone. All runs charged to the budget of the data set "
            f"{self.budget_id!r}, each of which may have been chosen from the results of earlier ones, are "
            f"together ({self.totals.epsilon:g}, {self.totals.delta:g})-differentially private for "
            f"{self.totals.relation.in_words}: a Rényi filter with fully adaptive composition (Feldman and "
            "Zrnic 2021, arXiv 2008.11193) admitted each release before it was drawn (orders "
            f"λ = {orders}, which share δ)."
        )

    def _priced(self, phase: Phase) -> Priced:
        return Priced(phase.event, phase.lots, self.totals.price(phase.event))


def budget_metrics(found: BudgetRecord) -> dict[str, float]:
    """Figures of a budget for a tracker."""
    totals, spent = found.totals, found.spent
    if totals.epsilon is None:
        return {"budget/realized_loss": totals.spent_epsilon(spent)}
    fraction = totals.spent_fraction(spent)
    assert fraction is not None
    return {"budget/epsilon_total": totals.epsilon, "budget/spent_fraction": fraction}


def _limit(totals: Totals) -> str:
    return (
        "no limit, an odometer"
        if totals.epsilon is None
        else f"ε = {totals.epsilon:g} at δ = {totals.delta:g}"
    )
