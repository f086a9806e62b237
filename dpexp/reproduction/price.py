"""What several runs on the same training data cost together."""

from collections.abc import Iterator, Sequence

from dpexp.accounting import Phase, PrivacyBound, total
from dpexp.console import shown_up
from dpexp.plan import PrivacyPlan

__all__ = ["price_in_words", "prices"]


def prices(plans: Sequence[PrivacyPlan]) -> tuple[PrivacyBound, ...]:
    """ε of releasing everything that these runs release, by their accountant and those beside it.

    Plain composition (Abadi et al. 2016, Theorem 2.1): valid since the grid is fixed before the first run.
    Releasing only the best of them costs the same, since which one is best depends on all.

    Args:
        plans: At least one; all under one relation, accountant and δ. Empty result without privacy.
    """
    guarantees = [plan.guarantee for plan in plans]
    first = guarantees[0]
    if first is None:
        return ()
    for guarantee in guarantees:
        assert guarantee is not None
        assert guarantee.relation is first.relation
        assert guarantee.budget.delta == first.budget.delta
    phases = [phase for plan in plans for phase in _phases(plan)]
    return tuple(total(first.open_account(a), phases) for a in (first.accountant, *first.companions))


def price_in_words(what: str, plans: Sequence[PrivacyPlan]) -> str:
    """One sentence: what publishing all of `what` costs."""
    bounds = prices(plans)
    if not bounds:
        return f"{what}: without privacy."
    figures = ", ".join(f"{shown_up(bound)} by {bound.accountant}" for bound in bounds)
    cost = f"ε ≤ {figures} (certified) at δ = {bounds[0].delta:g}"
    if len(plans) == 1:
        return f"{what}: 1 run costs {cost}."
    together = f"{len(plans)} runs on the same rows together cost"
    return f"{what}: {together} {cost}; publishing only the best of them costs as much."


def _phases(plan: PrivacyPlan) -> Iterator[Phase]:
    assert plan.guarantee is not None
    yield from (Phase(release.event, 1) for release in plan.guarantee.releases)
    yield from plan.phases(plan.steps)
