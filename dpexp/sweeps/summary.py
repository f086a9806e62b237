"""What a sweep came to, and what all its runs cost together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from dpexp import _validate
from dpexp.accounting import Kind, PrivacyBound
from dpexp.budgets import DatasetBudget
from dpexp.experiment import Experiment
from dpexp.ledger import Terms, charged_phases, ledger_of
from dpexp.price import Charged, Price, price_of
from dpexp.sweeps.children import Child
from dpexp.sweeps.runs import RunOfSweep
from dpexp.tracking.tags import COMMAND_TAG, PLAN_TAG

__all__ = ["Summary", "adaptive_price", "listed_charges", "listed_price"]

_LISTED = "All jobs that can run are charged whole, since they were listed beforehand."


@final
@dataclass(frozen=True, kw_only=True)
class Summary:
    """A sweep at its end.

    Attributes:
        runs: All of them.
        listed: How many jobs there were to be; None where nobody knew beforehand.
        price: Of everything that they release.
    """

    runs: Sequence[RunOfSweep]
    listed: int | None
    price: Price

    @property
    def begun(self) -> int:
        """Jobs that have a run."""
        return len({run.child.job for run in self.runs})

    @property
    def finished(self) -> int:
        """Jobs of which one came to its end."""
        return len({run.child.job for run in self.runs if run.child.finished})

    @property
    def complete(self) -> bool:
        """Nothing is left to do."""
        return self.finished == (self.begun if self.listed is None else self.listed)

    @property
    def metrics(self) -> dict[str, float]:
        """For the parent."""
        counts: dict[str, float] = {
            "sweep/jobs": self.begun,
            "sweep/finished": self.finished,
            "sweep/failed": self.begun - self.finished,
        }
        if not self.price.bounds:
            return counts
        bound = self.price.bounds[0]
        assert bound.delta is not None
        price = {"sweep/epsilon_all": float(bound), "sweep/epsilon_best": float(bound)}
        return {**counts, **price, "sweep/delta": bound.delta}

    @property
    def in_words(self) -> str:
        """How the jobs ended, and the price."""
        words = f"{self.finished} jobs came to their end"
        if failed := self.begun - self.finished:
            words += f", {failed} did not"
        if self.listed is not None and self.listed > self.begun:
            words += f", {self.listed - self.begun} did not begin"
        return f"{words}. {self.price.in_words('The whole sweep')}"


def listed_price(
    children: Sequence[Child], jobs: Mapping[int, Experiment], charged: Mapping[str, Charged]
) -> Price:
    """The price of runs that were all listed before the first one was started.

    Those that did not begin are charged too: which of them are left out was chosen, or may have been, after
    the results of others were seen.

    Args:
        children: All runs of the sweep.
        jobs: What each job on the list trains, by its number.
        charged: As `listed_charges` finds it.
    """
    begun = [child.job for child in children if child.run_id in charged]
    others = [part for number in sorted(jobs.keys() - set(begun)) for part in _whole(jobs[number])]
    price = price_of([*charged.values(), *others])
    done = {child.job for child in children if child.finished}
    return price if jobs.keys() <= done else replace(price, remark=f"{_LISTED} {price.remark}".rstrip())


def listed_charges(children: Sequence[Child], jobs: Mapping[int, Experiment]) -> dict[str, Charged]:
    """What each run that may have released anything is charged, by its id, in the order of the jobs.

    Raises:
        UserError: A run was made under another configuration than its command line makes now.
        LedgerError: A ledger cannot be read.
    """
    in_order = sorted(children, key=lambda child: child.job)  # sums do not depend on who was first
    begun = [child for child in in_order if child.begun(jobs[child.job].tracking.folder)]
    return {child.run_id: _charged(child, jobs[child.job]) for child in begun}


def adaptive_price(children: Sequence[Child], budget: DatasetBudget, outputs: Path) -> Price:
    """The price of runs of which later ones were chosen by the results of earlier ones.

    Only a filter declared beforehand bounds them: the one that all were charged to, by its own record.

    Args:
        children: All runs of the sweep.
        budget: The shared budget.
        outputs: Folder of their ledgers.

    Raises:
        BudgetStoreError: The budget cannot be read.
    """
    begun = {child.run_id for child in children if child.begun(outputs)}
    totals, charged = budget.on_record()
    if totals is None or totals.epsilon is None or not begun <= charged:
        return Price(
            runs=len(begun),
            bounds=(),
            why="no ε declared beforehand bounds all its runs: their budget is an odometer, or not the same",
        )
    bound = PrivacyBound(
        totals.epsilon,
        kind=Kind.CERTIFIED,
        accountant="filter",
        relation=totals.relation,
        delta=totals.delta,
    )
    remark = (
        "Its sweeper chose later points by earlier results, so that it is priced as fully adaptive: by the "
        f"ε of the budget {budget.budget_id!r}, whose filter admitted every lot. Such a sweep cannot be "
        "resumed."
    )
    return Price(runs=len(begun), bounds=(bound,), remark=remark)


def _whole(job: Experiment) -> list[Charged]:
    """A job that has not begun; of one that declared facts alone make impossible nothing can come."""
    try:
        return [Charged.whole(job.plan())]
    except _validate.UserError:
        return []


def _charged(child: Child, experiment: Experiment) -> Charged:
    plan = experiment.plan()
    terms = Terms.of(plan, experiment.config)
    if child.tags.get(PLAN_TAG, terms.hash.hex()) != terms.hash.hex():  # without it the ledger knows
        raise _validate.UserError(
            f"Run {child.run_id} was made under another configuration than its command line makes now:\n"
            f"  {child.tags.get(COMMAND_TAG, '')}\nThe sweep has no price until the files are changed back."
        )
    if plan.guarantee is None:
        return Charged.whole(plan)
    path = ledger_of(experiment.tracking.folder, child.run_id)
    phases = charged_phases(path, run_id=child.run_id, terms=terms.hash, plan=plan)
    return Charged(plan=plan, phases=phases)
