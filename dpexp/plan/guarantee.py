"""What a plan claims, and how it is proven."""

from dataclasses import dataclass

from dpexp.accounting import (
    FIXED_BEFOREHAND,
    Account,
    AnyAccountant,
    Budget,
    BudgetTerms,
    Phase,
    Relation,
    Release,
)

__all__ = ["Guarantee"]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What the run claims and how it is proven.

    Attributes:
        accountant: The configured accountant; certified.
        companions: Accountants shown beside it.
        relation: The neighboring relation.
        budget: ε (or no limit) and δ.
        releases: What is released once from all rows before the first lot (DP-PCA).
        terms: Under which terms the budget is spent.
    """

    accountant: AnyAccountant
    companions: tuple[AnyAccountant, ...]
    relation: Relation
    budget: Budget
    releases: tuple[Release, ...]
    terms: BudgetTerms = FIXED_BEFOREHAND

    @property
    def phases_before(self) -> list[Phase]:
        """The releases before the first lot, as `PrivacyPlan.phases` gives the lots."""
        return [Phase(release.event, 1) for release in self.releases]

    def open_account(self, accountant: AnyAccountant) -> Account:
        """An account under which nothing has been charged yet."""
        return Account(accountant, self.relation, self.budget)

    def charged_account(self, accountant: AnyAccountant) -> Account:
        """An account that has already paid for the releases before the first lot."""
        account = self.open_account(accountant)
        for release in self.releases:
            account.charge(release.event)
        return account
