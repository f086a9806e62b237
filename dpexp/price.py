"""What several runs on the same training data cost together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

from dpexp.accounting import (
    Account,
    AnyAccountant,
    Budget,
    Kind,
    Phase,
    PrivacyBound,
    UnsupportedEventError,
    total,
)
from dpexp.console import shown_up
from dpexp.plan import Guarantee, PrivacyPlan

__all__ = ["Charged", "Price", "price_of"]


_KEYED = "Noise keyed by the seed makes this arithmetic and not a guarantee."


@final
@dataclass(frozen=True, kw_only=True)
class Charged:
    """What one run is charged.

    Attributes:
        plan: Its plan.
        phases: All its releases.
    """

    plan: PrivacyPlan
    phases: Sequence[Phase]

    @classmethod
    def whole(cls, plan: PrivacyPlan) -> Self:
        """All that was planned, whatever was drawn of it: T was fixed beforehand."""
        if plan.guarantee is None:
            return cls(plan=plan, phases=())
        return cls(plan=plan, phases=[*plan.guarantee.phases_before, *plan.phases(plan.steps)])

    @property
    def alone(self) -> PrivacyBound | None:
        """ε of this run alone, by its own accountant and at its own δ; None without privacy."""
        guarantee = self.plan.guarantee
        if guarantee is None:
            return None
        return total(guarantee.open_account(guarantee.accountant), self.phases)


@final
@dataclass(frozen=True, kw_only=True)
class Price:
    """What publishing everything that several runs release costs.

    Attributes:
        runs: How many there are.
        bounds: ε under the accountants that price them all, the one that counts first; empty where no ε
            bounds them together, or where there is no private run.
        why: Why there is none; empty where there is one.
        remark: What else is to be said of it.
    """

    runs: int
    bounds: tuple[PrivacyBound, ...]
    why: str = ""
    remark: str = ""

    def in_words(self, what: str) -> str:
        """One or two sentences on the cost of publishing all of `what`."""
        if not self.bounds:
            return f"{what}: {self.why}."
        figures = ", ".join(f"{shown_up(bound)} by {bound.accountant}" for bound in self.bounds)
        cost = f"ε ≤ {figures} (certified) at δ = {self.bounds[0].delta:g}"
        words = f"{what}: 1 run costs {cost}."
        if self.runs > 1:
            words = (
                f"{what}: {self.runs} runs on the same rows together cost {cost}; publishing only the best "
                "of them costs as much."
            )
        return f"{words} {self.remark}".rstrip()


def price_of(charged: Sequence[Charged]) -> Price:
    """ε of releasing everything that these runs release.

    Plain composition (Abadi et al. 2016, Theorem 2.1): valid where the runs were listed before the first one
    was started. Releasing only the best of them costs the same, since which one is best depends on all. All
    are taken to be on the same rows, at the least of their δ.
    """
    guarantees = [run.plan.guarantee for run in charged if run.plan.guarantee is not None]
    if why := _why_there_is_none(charged, guarantees):
        return Price(runs=len(charged), bounds=(), why=why)
    budget = Budget(epsilon=None, delta=min(guarantee.budget.delta for guarantee in guarantees))
    relation = guarantees[0].relation
    phases = [phase for run in charged for phase in run.phases]
    bounds = [
        bound
        for accountant in _accountants(guarantees)
        if (bound := _total(Account(accountant, relation, budget), phases)) is not None
    ]
    if not bounds:
        return Price(runs=len(charged), bounds=(), why="no accountant among theirs prices all of them")
    keyed = any(run.plan.deterministic for run in charged)
    return Price(runs=len(charged), bounds=tuple(bounds), remark=_KEYED if keyed else "")


def _why_there_is_none(charged: Sequence[Charged], guarantees: Sequence[Guarantee]) -> str:
    if not guarantees:
        return "without privacy" if charged else "no run"
    if len(guarantees) < len(charged):
        count = len(charged) - len(guarantees)
        return f"{count} of {len(charged)} runs are without privacy: no ε bounds what all release together"
    relations = sorted({str(guarantee.relation) for guarantee in guarantees})
    if len(relations) > 1:
        return f"runs under {' and '.join(relations)}: their ε do not add up"
    if any(guarantee.terms.name in ("filter", "odometer") for guarantee in guarantees):
        return (
            "runs under a filter or odometer of their own, whose ε do not add up to one that was fixed "
            "beforehand (budget=dataset holds all of them to one ε)"
        )
    return ""


def _accountants(guarantees: Sequence[Guarantee]) -> list[AnyAccountant]:
    """Those configured, then those shown beside them, each once; all of them certified."""
    named: dict[str, AnyAccountant] = {}
    for guarantee in guarantees:
        named.setdefault(guarantee.accountant.name, guarantee.accountant)
    for guarantee in guarantees:
        for companion in guarantee.companions:
            named.setdefault(companion.name, companion)
    return [accountant for accountant in named.values() if accountant.kind is Kind.CERTIFIED]


def _total(account: Account, phases: Sequence[Phase]) -> PrivacyBound | None:
    try:
        return total(account, phases)
    except UnsupportedEventError:
        return None
