"""What a sweep came to, and what all its runs cost together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from dpexp import _validate
from dpexp.accounting import Kind, PrivacyBound, Relation
from dpexp.budgets import DatasetBudget
from dpexp.experiment import Experiment
from dpexp.ledger import Terms, charged_phases, ledger_of
from dpexp.price import Charged, Price, price_of
from dpexp.sweeps.children import Child
from dpexp.tracking.tags import PLAN_TAG

__all__ = ["Summary", "adaptive_price", "listed_price", "summary_of"]

Maker = Callable[[Sequence[str]], Experiment]


@final
@dataclass(frozen=True, kw_only=True)
class Summary:
    """A sweep at its end.

    Attributes:
        jobs: How many began.
        finished: How many of them came to their end.
        price: Of everything that all runs released, those that did not finish included.
    """

    jobs: int
    finished: int
    price: Price

    @property
    def metrics(self) -> dict[str, float]:
        """For the parent."""
        counts: dict[str, float] = {
            "sweep/jobs": self.jobs,
            "sweep/finished": self.finished,
            "sweep/failed": self.jobs - self.finished,
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
        left = "" if self.finished == self.jobs else f", {self.jobs - self.finished} did not"
        return f"{self.finished} jobs came to their end{left}. {self.price.in_words('The whole sweep')}"


def summary_of(children: Sequence[Child], price: Price) -> Summary:
    """Counts the jobs of a sweep.

    Args:
        children: All its runs.
        price: What they cost together.
    """
    return Summary(
        jobs=len({child.job for child in children}),
        finished=len({child.job for child in children if child.finished}),
        price=price,
    )


def listed_price(children: Sequence[Child], make: Maker) -> Price:
    """The price of runs that were all listed before the first one was started.

    Args:
        children: All runs of the sweep.
        make: The experiment of a command line.

    Raises:
        UserError: A run was made under another configuration than its command line makes now.
        LedgerError: A ledger cannot be read.
    """
    return price_of([_charged(child, make(child.overrides)) for child in _begun(children)])


def adaptive_price(children: Sequence[Child], budget: DatasetBudget) -> Price:
    """The price of runs of which later ones were chosen by the results of earlier ones.

    Only a filter declared beforehand bounds them: the one that all of them were charged to.

    Args:
        children: All runs of the sweep.
        budget: The shared budget.
    """
    begun = _begun(children)
    charged = all(child.tags.get("dpexp.budget_id") == budget.budget_id for child in begun)
    limits = {child.metrics.get("budget/epsilon_total") for child in begun}
    if not charged or len(limits) != 1 or None in limits:
        return Price(
            runs=len(begun),
            bounds=(),
            why="no ε declared beforehand bounds all its runs: their budget is an odometer, or not the same",
        )
    (limit,) = limits
    assert limit is not None
    bound = PrivacyBound(
        limit,
        kind=Kind.CERTIFIED,
        accountant="filter",
        relation=Relation(budget.relation),
        delta=budget.delta,
    )
    remark = (
        "Its sweeper chose later points by earlier results, so that it is priced as fully adaptive: by the "
        f"ε of the budget {budget.budget_id!r}, whose filter admitted every lot. Such a sweep cannot be "
        "resumed."
    )
    return Price(runs=len(begun), bounds=(bound,), remark=remark)


def _begun(children: Sequence[Child]) -> list[Child]:
    """The others ended before their first release."""
    return [child for child in children if PLAN_TAG in child.tags]


def _charged(child: Child, experiment: Experiment) -> Charged:
    plan = experiment.plan()
    terms = Terms.of(plan, experiment.config)
    if child.tags[PLAN_TAG] != terms.hash.hex():
        raise _validate.UserError(
            f"Run {child.run_id} was made under another configuration than its command line makes now:\n"
            f"  {' '.join(child.overrides)}\nThe sweep has no price until the files are changed back."
        )
    if plan.guarantee is None:
        return Charged.whole(plan)
    path = ledger_of(experiment.tracking.folder, child.run_id)
    phases = charged_phases(path, run_id=child.run_id, terms=terms.hash, plan=plan)
    return Charged(plan=plan, phases=phases)
