"""What was spent from a budget, by which run, and what is left: figures, from the store alone."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from dpexp import _validate
from dpexp.accounting.gaussian_profile import epsilon_of_gdp
from dpexp.budgets.dataset import DatasetBudget
from dpexp.budgets.record import BudgetRecord, Reservation, RunRecord
from dpexp.budgets.spending import Spending
from dpexp.budgets.store import BudgetStore
from dpexp.budgets.totals import Totals
from dpexp.plan import PrivacyPlan

__all__ = ["BudgetOverview", "Left", "RunSpending", "budget_overview"]

_POINTS = 200


@final
@dataclass(frozen=True, kw_only=True)
class RunSpending:
    """One run.

    Attributes:
        run: Its name in the store.
        label: Its name for people.
        mlflow_run: The MLflow run, if it came so far.
        started: When, by its machine's clock.
        releases: Lots and other releases charged and not given back.
        returned: Lots given back.
        alone: What it spent, measured as if it had been the only one.
    """

    run: str
    label: str
    mlflow_run: str | None
    started: str
    releases: int
    returned: int
    alone: float


@final
@dataclass(frozen=True, kw_only=True)
class Left:
    """What would still be admitted.

    Attributes:
        noise_multiplier: The smallest σ of one Gaussian release on all rows, rounded up.
        epsilon: The ε of that release alone, at the budget's δ.
        lots: How many lots of the configured plan; None where no plan is configured.
        plan_lots: How many releases that plan has.
        why_no_plan: Why there is none.
    """

    noise_multiplier: float
    epsilon: float
    lots: int | None
    plan_lots: int | None
    why_no_plan: str | None


@final
@dataclass(frozen=True, kw_only=True)
class BudgetOverview:
    """A budget in figures.

    Attributes:
        id: `data.budget_id`.
        totals: The terms on record.
        opened: When it was opened.
        spent: What was spent: the ε of the filter that would just have admitted it, which is a measure and no
            claim; or the bound on the realized loss.
        fraction: The part of the filter that is used; None without a limit.
        runs: Every run that opened it, in order.
        left: What is left; None without a limit.
        trajectory: Releases charged so far and what was spent then, at up to 200 moments.
    """

    id: str
    totals: Totals
    opened: str
    spent: float
    fraction: float | None
    runs: tuple[RunSpending, ...]
    left: Left | None
    trajectory: tuple[tuple[int, float], ...]

    @property
    def measure(self) -> str:
        """What `spent` measures."""
        if self.totals.epsilon is None:
            return "realized loss (certified)"
        return "ε of the filter that holds it"

    @property
    def measure_in_ascii(self) -> str:
        """The same for terminals."""
        return self.measure.replace("ε", "epsilon")

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        totals = self.totals
        return {
            "id": self.id,
            "opened": self.opened,
            "epsilon": totals.epsilon,
            "delta": totals.delta,
            "relation": str(totals.relation),
            "orders": list(totals.orders),
            "rule": "odometer" if totals.epsilon is None else "filter",
            "spent": {"value": self.spent, "measure": self.measure, "fraction": self.fraction},
            "runs": [asdict(run) for run in self.runs],
            "left": None if self.left is None else asdict(self.left),
            "trajectory": [{"releases": releases, "value": value} for releases, value in self.trajectory],
        }


def budget_overview(budget: DatasetBudget, plan: PrivacyPlan | _validate.UserError) -> BudgetOverview:
    """Reads the store and counts; changes nothing.

    Args:
        budget: Names budget and store.
        plan: The configured plan, or why there is none.

    Raises:
        UserError: There is no such budget, or the store cannot be read.
    """
    store = BudgetStore(database=budget.database)
    found, runs, entries = store.read(budget.budget_id)
    if found is None:
        raise _no_budget(budget, store)
    totals = found.totals
    return BudgetOverview(
        id=found.id,
        totals=totals,
        opened=found.opened,
        spent=totals.spent_epsilon(found.spent),
        fraction=totals.spent_fraction(found.spent),
        runs=tuple(_runs(totals, runs, entries)),
        left=None if totals.epsilon is None else _left(found, plan),
        trajectory=tuple(_trajectory(totals, entries)),
    )


def _no_budget(budget: DatasetBudget, store: BudgetStore) -> _validate.UserError:
    known = store.ids()
    hint = _validate.did_you_mean(budget.budget_id, known)
    expected = f"one of {', '.join(known)}" if known else "a budget; there is none yet"
    return _validate.refuse("data.budget_id", budget.budget_id, f"{expected}, in {budget.store}", hint)


def _runs(totals: Totals, runs: Sequence[RunRecord], entries: Sequence[Reservation]) -> list[RunSpending]:
    of_run: dict[str, list[Reservation]] = {run.run: [] for run in runs}
    for entry in entries:
        of_run[entry.run].append(entry)
    return [_run(totals, run, of_run[run.run]) for run in runs]


def _run(totals: Totals, run: RunRecord, entries: Sequence[Reservation]) -> RunSpending:
    spent = Spending.nothing(len(totals.orders))
    for entry in entries:
        spent = spent.plus(entry.moments, entry.lots)
    return RunSpending(
        run=run.run,
        label=run.label,
        mlflow_run=run.mlflow_run,
        started=run.started,
        releases=sum(entry.lots for entry in entries),
        returned=-sum(entry.lots for entry in entries if entry.lots < 0),
        alone=totals.spent_epsilon(spent),
    )


def _left(found: BudgetRecord, plan: PrivacyPlan | _validate.UserError) -> Left:
    totals = found.totals
    # One Gaussian release on all rows has α(λ) = λ(λ+1)μ²/2 for noise of 1/μ times its sensitivity.
    pairs = zip(totals.orders, totals.limits, found.spent.rounded_up, strict=True)
    square = max((2 * (limit - alpha) / (order * (order + 1)) for order, limit, alpha in pairs), default=0.0)
    mu = math.sqrt(max(square, 0.0)) * (1 - 1e-12)
    lots, planned, why = _plan_lots(found, plan)
    return Left(
        noise_multiplier=1 / mu if mu > 0 else math.inf,
        epsilon=epsilon_of_gdp(mu, math.log(totals.delta)) if mu > 0 else 0.0,
        lots=lots,
        plan_lots=planned,
        why_no_plan=why,
    )


def _plan_lots(
    found: BudgetRecord, plan: PrivacyPlan | _validate.UserError
) -> tuple[int | None, int | None, str | None]:
    if isinstance(plan, _validate.UserError):
        return None, None, str(plan).splitlines()[0]
    assert plan.guarantee is not None
    phases = [*plan.guarantee.phases_before, *plan.phases(plan.steps)]
    within = found.totals.lots_within(found.spent, found.totals.priced(phases))
    return within, sum(phase.lots for phase in phases), None


def _trajectory(totals: Totals, entries: Sequence[Reservation]) -> list[tuple[int, float]]:
    stride = max(1, math.ceil(len(entries) / _POINTS))
    spent, releases, points = Spending.nothing(len(totals.orders)), 0, [(0, 0.0)]
    for index, entry in enumerate(entries, start=1):
        spent, releases = spent.plus(entry.moments, entry.lots), releases + entry.lots
        if index % stride == 0 or index == len(entries):
            points.append((releases, totals.spent_epsilon(spent)))
    return points
