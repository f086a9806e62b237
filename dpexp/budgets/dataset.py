"""`budget=dataset`: one budget that all runs on a data set share, in a local file or on a server."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from dpexp import _validate
from dpexp.accounting import SIXTEEN_ORDERS, AnyAccountant, BudgetTerms, Phase, Relation
from dpexp.budgets.database import Database
from dpexp.budgets.fitting import what_would_fit
from dpexp.budgets.lotwise import require_lotwise
from dpexp.budgets.record import BudgetRecord
from dpexp.budgets.share import Share
from dpexp.budgets.store import BudgetRefusedError, BudgetStore
from dpexp.budgets.totals import Totals
from dpexp.plan import PrivacyPlan

__all__ = ["DatasetBudget"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RECORDED = "recorded"


@final
@dataclass(frozen=True, kw_only=True)
class DatasetBudget:
    """A filter (or, without ε, an odometer) for everything that is ever computed from one data set.

    Attributes:
        id: `data.budget_id`, the declared name of the data set's budget.
        epsilon: ε of all runs together; None for no limit (an odometer); `recorded` for that on record.
        delta: δ of the same.
        relation: The neighboring relation.
        orders: λ of the filter, increasing; None for sixteen from 1 to 255, or for those on record.
        store: A path, or `postgresql+psycopg://user@host/database` without password.
        wait_s: How long to wait for other runs' reservations, in seconds.
    """

    shared = True
    id: str | None
    epsilon: float | str | None
    delta: float
    relation: str
    orders: Sequence[int] | None
    store: str
    wait_s: float = 30

    def __post_init__(self) -> None:
        if not (isinstance(self.id, str) and _ID.fullmatch(self.id)):
            hint = "All runs that name the same budget share it, whatever files they read."
            expected = "a name for the data set's budget: letters, digits, ., - and _"
            raise _validate.refuse("data.budget_id", self.id, expected, hint)
        if self.relation is None or self.delta is None:  # the keys of privacy=none
            hint = "A run without privacy spends any budget at once. Train on data without data.budget_id."
            raise _validate.refuse("privacy", "none", "DP-SGD with budget=dataset", hint)
        if isinstance(self.epsilon, str):
            _validate.one_of("budget.epsilon", self.epsilon, [_RECORDED])
        _validate.number("budget.wait_s", self.wait_s, above=0)
        self._declared(SIXTEEN_ORDERS, None if isinstance(self.epsilon, str) else self.epsilon)

    @property
    def budget_id(self) -> str:
        """`data.budget_id`."""
        assert self.id is not None
        return self.id

    def solver(self, accountant: AnyAccountant) -> AnyAccountant:
        """The configured accountant, which prices the run alone."""
        return accountant

    def settle(self, draft: PrivacyPlan) -> PrivacyPlan:
        """The draft under terms that name the budget; the store is not touched.

        Raises:
            UserError: The noise is no secret, or lots are drawn so that none has a price of its own.
        """
        guarantee = draft.guarantee
        assert guarantee is not None
        if draft.deterministic:
            hint = "Whoever knows the seed can subtract the noise: no budget would hold. Use budget=run."
            raise _validate.refuse("privacy.deterministic", True, "false with budget=dataset", hint)
        require_lotwise([*guarantee.phases_before, *draft.phases(draft.foreseeable)], "dataset")
        terms = BudgetTerms(name="dataset", in_words=f"shared by all runs on {self.id!r}")
        return replace(draft, guarantee=replace(guarantee, terms=terms))

    def open(self, plan: PrivacyPlan, *, label: str) -> Share:
        """The run's share, provided that the whole plan fits into what is left; reserves nothing.

        Raises:
            BudgetRefusedError: It does not fit; the message says what is left and what would.
            UserError: The terms are not those on record.
            BudgetStoreError: The store cannot be used.
        """
        guarantee = plan.guarantee
        assert guarantee is not None  # `Experiment.plan` has refused privacy=none
        store = BudgetStore(database=self.database)
        self.check_fits(
            store.open(self.budget_id, self._terms), [*guarantee.phases_before, *plan.phases(plan.steps)]
        )
        return self.join(plan, label=label)

    def join(self, plan: PrivacyPlan, *, label: str) -> Share:
        """The share of a run that goes on, which is asked for the rest block by block; reserves nothing.

        Raises:
            UserError: The terms are not those on record.
            BudgetStoreError: The store cannot be used.
        """
        store = BudgetStore(database=self.database)
        found = store.open(self.budget_id, self._terms)
        run = store.add_run(self.budget_id, label=label)
        return Share(store=store, budget_id=self.budget_id, totals=found.totals, run=run)

    def on_record(self) -> tuple[Totals | None, frozenset[str]]:
        """The terms it was opened under, None where it was not, and the MLflow runs that are charged to it.

        Raises:
            BudgetStoreError: The store cannot be read, or the record is damaged.
        """
        found, runs, _ = BudgetStore(database=self.database).read(self.budget_id)
        names = frozenset(run.mlflow_run for run in runs if run.mlflow_run is not None)
        return (None if found is None else found.totals), names

    def check_fits(self, found: BudgetRecord, phases: Sequence[Phase]) -> None:
        """Refuses a plan that would pass the total.

        Raises:
            BudgetRefusedError: It would.
        """
        totals = found.totals
        if not totals.admits(totals.spent_after(found.spent, totals.priced(phases))):
            raise BudgetRefusedError(what_would_fit(found, phases))

    @property
    def database(self) -> Database:
        """Where the budget is kept."""
        return Database(store=self.store, wait_s=self.wait_s)

    def _terms(self, found: BudgetRecord | None) -> Totals:
        """The terms to open it under, or those on record if they are the ones declared."""
        if found is None:
            if isinstance(self.epsilon, str):
                hint = (
                    "Set budget.epsilon to the ε that all runs on the data set share; it is fixed for good."
                )
                expected = (
                    f"a number (or null for no limit), since {self.id!r} has no budget in {self.store} yet"
                )
                raise _validate.refuse("budget.epsilon", self.epsilon, expected, hint)
            return self._declared(tuple(self.orders or SIXTEEN_ORDERS), self.epsilon)
        epsilon = found.totals.epsilon if isinstance(self.epsilon, str) else self.epsilon
        declared = self._declared(tuple(self.orders or found.totals.orders), epsilon)
        for key in ("epsilon", "delta", "relation", "orders"):
            recorded, asked = getattr(found.totals, key), getattr(declared, key)
            if recorded != asked:
                raise _not_as_recorded(key, asked, recorded, found)
        return declared

    def _declared(self, orders: tuple[int, ...], epsilon: Any) -> Totals:
        relation = Relation(
            _validate.one_of("budget.relation", self.relation, [str(word) for word in Relation])
        )
        return Totals(
            epsilon=epsilon, delta=self.delta, relation=relation, orders=tuple(self.orders or orders)
        )


def _not_as_recorded(key: str, asked: Any, recorded: Any, found: BudgetRecord) -> _validate.UserError:
    plain = str(recorded) if isinstance(recorded, Relation) else recorded
    hint = (
        f"The budget {found.id!r} was opened on {found.opened[:10]} with {found.totals.in_words}. "
        "Its terms are fixed for good: changing them after results were seen would void the filter."
    )
    shown = str(asked) if isinstance(asked, Relation) else asked
    return _validate.refuse(f"budget.{key}", shown, f"{plain!r}, as on record", hint)
