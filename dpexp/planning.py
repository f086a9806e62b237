"""All the privacy arithmetic of a plan as figures: at the end, by release, by epoch. No data, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpexp.accounting import (
    AnyAccountant,
    PrivacyBound,
    UnsupportedEventError,
    accountants_by_name,
    as_accountant,
    total,
)
from dpexp.plan import Guarantee, PrivacyPlan

__all__ = ["Milestone", "PlanFigures", "Refusal", "Share", "plan_figures"]

_MILESTONES = 10


@dataclass(frozen=True)
class Share:
    """What one part of a run would cost alone."""

    name: str
    epsilon: PrivacyBound


@dataclass(frozen=True)
class Milestone:
    """ε after so many lots, by the configured accountant."""

    lots: int
    epochs: float
    epsilon: PrivacyBound


@dataclass(frozen=True)
class Refusal:
    """An accountant that has no bound for this plan, and why."""

    accountant: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlanFigures:
    """The figures of a plan.

    Attributes:
        at_end: ε of the whole run under every accountant that can price it, the configured one first.
        refusals: The accountants that cannot.
        shares: ε of each part alone, by the configured accountant; ε does not add up, so neither do they.
        milestones: ε along training, by the configured accountant.
    """

    at_end: tuple[PrivacyBound, ...]
    refusals: tuple[Refusal, ...]
    shares: tuple[Share, ...]
    milestones: tuple[Milestone, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values; every ε with its kind."""
        return {
            "epsilon": {bound.accountant: _plain(bound) for bound in self.at_end},
            "refused": {refusal.accountant: refusal.reason for refusal in self.refusals},
            "shares": [{"name": share.name, **_plain(share.epsilon)} for share in self.shares],
            "trajectory": [
                {"lots": at.lots, "epochs": at.epochs, **_plain(at.epsilon)} for at in self.milestones
            ],
        }


def plan_figures(plan: PrivacyPlan) -> PlanFigures:
    """Prices a plan under every accountant.

    Raises:
        ValueError: The plan has no privacy, so there is nothing to price.
    """
    if plan.guarantee is None:
        raise ValueError("A plan without privacy has no figures.")
    at_end, refusals = _at_end(plan, plan.guarantee)
    return PlanFigures(
        at_end=at_end,
        refusals=refusals,
        shares=_shares(plan, plan.guarantee),
        milestones=tuple(_milestone(plan, plan.guarantee, lots) for lots in _lots_shown(plan.steps)),
    )


def _at_end(plan: PrivacyPlan, guarantee: Guarantee) -> tuple[tuple[PrivacyBound, ...], tuple[Refusal, ...]]:
    bounds, refusals = [], []
    for accountant in _all_accountants(guarantee.accountant):
        try:
            bounds.append(_epsilon(plan, guarantee, accountant))
        except UnsupportedEventError as error:
            refusals.append(Refusal(accountant.name, str(error).splitlines()[0]))
    return tuple(bounds), tuple(refusals)


def _all_accountants(configured: AnyAccountant) -> list[AnyAccountant]:
    others = [as_accountant(name) for name in accountants_by_name if name != configured.name]
    return [configured, *others]


def _epsilon(plan: PrivacyPlan, guarantee: Guarantee, accountant: AnyAccountant) -> PrivacyBound:
    return total(guarantee.charged_account(accountant), list(plan.phases(plan.steps)))


def _shares(plan: PrivacyPlan, guarantee: Guarantee) -> tuple[Share, ...]:
    shares = []
    for release in guarantee.releases:
        account = guarantee.open_account(guarantee.accountant)
        account.charge(release.event)
        shares.append(Share(release.name, account.epsilon()))
    empty = guarantee.open_account(guarantee.accountant)
    shares.append(Share(f"{plan.steps:,} lots", total(empty, list(plan.phases(plan.steps)))))
    return tuple(shares)


def _milestone(plan: PrivacyPlan, guarantee: Guarantee, lots: int) -> Milestone:
    account = guarantee.charged_account(guarantee.accountant)
    bound = total(account, list(plan.phases(lots)))
    return Milestone(lots=lots, epochs=lots / plan.lots_per_epoch, epsilon=bound)


def _lots_shown(steps: int) -> Sequence[int]:
    return sorted({max(1, round(steps * part / _MILESTONES)) for part in range(1, _MILESTONES + 1)})


def _plain(bound: PrivacyBound) -> dict[str, Any]:
    return {
        "value": float(bound),
        "kind": str(bound.kind),
        "accountant": bound.accountant,
        "delta": bound.delta,
        "relation": str(bound.relation),
    }
