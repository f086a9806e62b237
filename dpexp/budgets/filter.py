"""`budget=filter`: the run's own Rényi filter. Its (ε, δ) holds whatever T turns out to be."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import final

from dpexp import _validate
from dpexp.accounting import AnyAccountant, BudgetTerms, Phase, best_filter_order, lots_within
from dpexp.accounting.filter_accountant import FilterAccountant, FilterOrders
from dpexp.budgets.lotwise import require_lotwise, require_moments
from dpexp.plan import LONGEST_SCHEDULE, Guarantee, PrivacyPlan

__all__ = ["FilterBudget"]

_MOST_LOTS = 10**9


@final
@dataclass(frozen=True, kw_only=True)
class FilterBudget:
    """A filter of one order, which is chosen from the plan before the first release.

    The claim is (`privacy.epsilon`, `privacy.delta`), also when T is prolonged after results were seen
    (Feldman and Zrnic, 2021, arXiv 2008.11193; proof in `accounting.filters`).

    Attributes:
        order: λ >= 1 of the filter; None for the one that admits most of the plan. A run that is prolonged
            keeps the order that it started with.
    """

    shared = False
    order: int | None = None

    def __post_init__(self) -> None:
        if self.order is not None:
            _validate.integer("budget.order", self.order, at_least=1)

    def solver(self, accountant: AnyAccountant) -> AnyAccountant:
        """The orders that the filter can be given.

        Raises:
            UserError: The accountant adds up something else than log moments.
        """
        require_moments(accountant, "filter")
        return FilterOrders()

    def settle(self, draft: PrivacyPlan) -> PrivacyPlan:
        """The draft under a filter of the order that admits most of it.

        Raises:
            UserError: There is no ε to stop at, or lots are drawn so that none has a price of its own.
        """
        guarantee = draft.guarantee
        assert guarantee is not None
        budget = guarantee.budget
        hint = "A filter stops at an ε. budget=odometer says what was spent without one."
        _validate.number("privacy.epsilon", budget.epsilon, above=0, hint=hint)
        planned = [*guarantee.phases_before, *draft.phases(draft.foreseeable)]
        require_lotwise(planned, "filter")
        order = self.order or best_filter_order(planned, budget, guarantee.relation)
        accountant = FilterAccountant(order=order, budget=budget)
        filtered = replace(guarantee, accountant=accountant, companions=())
        longest = _longest(filtered, draft)
        return replace(draft, guarantee=replace(filtered, terms=_terms(filtered, order, longest)))

    def join(self, plan: PrivacyPlan, *, label: str) -> None:
        """Nothing is shared."""

    def open(self, plan: PrivacyPlan, *, label: str) -> None:
        """Nothing is shared."""


def _longest(guarantee: Guarantee, draft: PrivacyPlan) -> int:
    account = guarantee.charged_account(guarantee.accountant)
    phases = draft.phases(_MOST_LOTS if draft.settles else LONGEST_SCHEDULE)
    return lots_within(account, _as_far_as_possible(phases))


def _as_far_as_possible(phases: Iterable[Phase]) -> Iterator[Phase]:
    """Until a schedule asks for what cannot be (q > 1): no run can be prolonged beyond that lot."""
    try:
        yield from phases
    except _validate.UserError:
        return


def _terms(guarantee: Guarantee, order: int, longest: int) -> BudgetTerms:
    budget = guarantee.budget
    return BudgetTerms(
        name="filter",
        in_words=f"filter of order λ = {order}; T may be prolonged to {longest:,} lots with the same ε",
        statement=(
            f"A filter of order λ = {order}, fixed before the first release, admitted every lot (Feldman and "
            f"Zrnic 2021, arXiv 2008.11193): ε = {budget.epsilon:g} at δ = {budget.delta:g} holds wherever "
            f"training was stopped or prolonged after results were seen, up to {longest:,} lots."
        ),
        longest=longest,
    )
