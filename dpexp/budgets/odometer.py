"""`budget=odometer`: no limit; what was spent is also bounded at stops chosen from results."""

from dataclasses import dataclass, replace
from typing import final

from dpexp import _validate
from dpexp.accounting import AnyAccountant, BudgetTerms
from dpexp.accounting.filter_accountant import OdometerAccountant
from dpexp.budgets.lotwise import require_lotwise
from dpexp.plan import PrivacyPlan

__all__ = ["OdometerBudget"]


@final
@dataclass(frozen=True, kw_only=True)
class OdometerBudget:
    """The ε of the T fixed beforehand, and beside it a bound on the realized loss at every moment.

    The second is no ε of a mechanism: with probability 1-δ the loss of what was released is no larger, at all
    times at once (Rogers et al., 2016, arXiv 1605.08294; proof in `accounting.filters`).
    """

    shared = False

    def solver(self, accountant: AnyAccountant) -> AnyAccountant:
        """The configured accountant."""
        return accountant

    def settle(self, draft: PrivacyPlan) -> PrivacyPlan:
        """The draft with the odometer beside its accountant.

        Raises:
            UserError: There is an ε to stop at, or lots are drawn so that none has a price of its own.
        """
        guarantee = draft.guarantee
        assert guarantee is not None
        if guarantee.budget.epsilon is not None:
            hint = "An odometer sets no limit: budget=filter stops at an ε."
            raise _validate.refuse("privacy.epsilon", guarantee.budget.epsilon, "null", hint)
        require_lotwise([*guarantee.phases_before, *draft.phases(draft.foreseeable)], "odometer")
        companions = (*guarantee.companions, OdometerAccountant())
        return replace(draft, guarantee=replace(guarantee, companions=companions, terms=_TERMS))

    def join(self, plan: PrivacyPlan, *, label: str) -> None:
        """Nothing is shared."""

    def open(self, plan: PrivacyPlan, *, label: str) -> None:
        """Nothing is shared."""


_TERMS = BudgetTerms(
    name="odometer",
    in_words="no limit; an odometer of 16 orders bounds the realized loss at any stop",
    statement=(
        "An odometer ran from the first release (Rogers et al. 2016, arXiv 1605.08294). Its figure bounds "
        "the realized privacy loss with probability 1-δ at all times at once, also at a stop chosen from "
        "results. It is not an ε of a mechanism; the ε above is that of the T fixed beforehand."
    ),
)
