"""All the privacy arithmetic of a plan as figures: at the end, by release, by epoch. No data, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpexp.accounting import (
    AnyAccountant,
    Kind,
    Phase,
    PrivacyBound,
    RenyiAccountant,
    UnsupportedEventError,
    accountants_by_name,
    as_accountant,
    total,
)
from dpexp.accounting.filter_accountant import FilterOrders
from dpexp.lots import PartitionSampling, PoissonSampling
from dpexp.plan import Guarantee, PrivacyPlan

__all__ = [
    "Milestone",
    "PlanFigures",
    "Refusal",
    "Share",
    "epsilons_at_end",
    "plan_as_json",
    "plan_figures",
    "shares_as_json",
    "shares_of",
]

_MILESTONES = 10
_MOST_PHASES = 200


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
            "shares": shares_as_json(self.shares),
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
    at_end, refusals = epsilons_at_end(plan)
    return PlanFigures(
        at_end=at_end,
        refusals=refusals,
        shares=shares_of(plan),
        milestones=tuple(_milestone(plan, plan.guarantee, lots) for lots in _lots_shown(plan.steps)),
    )


def epsilons_at_end(
    plan: PrivacyPlan, lost: Sequence[Phase] = ()
) -> tuple[tuple[PrivacyBound, ...], tuple[Refusal, ...]]:
    """ε of the whole run under every accountant, the configured one first, and who refuses and why.

    Shuffled lots get one more figure, a heuristic: `as_if_poisson`.

    Args:
        plan: The run's.
        lost: What was charged besides, where the run was interrupted.
    """
    if plan.guarantee is None:
        return (), ()
    phases = [*lost, *plan.phases(plan.steps)]
    bounds: list[PrivacyBound] = []
    refusals: list[Refusal] = []
    for accountant in _all_accountants(plan.guarantee.accountant):
        if plan.guarantee.terms.declares_filter and bounds:
            refusals.append(
                Refusal(accountant.name, "holds for a T fixed beforehand; this one may be prolonged")
            )
            continue
        try:
            bounds.append(_epsilon(plan.guarantee, accountant, phases))
        except UnsupportedEventError as error:
            refusals.append(Refusal(accountant.name, str(error).splitlines()[0]))
    if isinstance(plan.sampling, PartitionSampling):
        bounds.append(_as_if_poisson(plan, plan.guarantee))
    return tuple(bounds), tuple(refusals)


def plan_as_json(plan: PrivacyPlan) -> dict[str, Any]:
    """What a plan does, as plain values."""
    guarantee = plan.guarantee
    return {
        "num_examples": plan.num_examples,
        "steps": plan.steps,
        "epochs": plan.steps / plan.lots_per_epoch,
        "sampling": plan.sampling.name,
        "noise": plan.noise,
        "deterministic": plan.deterministic,
        "accountant": None if guarantee is None else guarantee.accountant.name,
        "delta": None if guarantee is None else guarantee.budget.delta,
        "budget_epsilon": None if guarantee is None else guarantee.budget.epsilon,
        "relation": None if guarantee is None else str(guarantee.relation),
        "budget": None if guarantee is None else guarantee.terms.name,
        "longest_steps": None if guarantee is None else guarantee.terms.longest,
        "releases": {} if guarantee is None else {r.name: repr(r.event) for r in guarantee.releases},
        "lots": [
            {"name": lot.name, "size": lot.size.in_words, "sampling_probability": step.sampling_probability}
            for lot, step in zip(plan.lots, plan.step(0).lots, strict=True)
        ],
        "groups": [
            {
                "name": group.name,
                "parameters": list(group.patterns),
                "clip_norm": group.clip_norm.in_words,
                "noise_multiplier": group.noise_multiplier.in_words,
                "lot": group.lot,
                "clipping": group.clipping.name,
                "clipping_in_words": group.clipping.in_words,
            }
            for group in plan.groups
        ],
    }


def shares_as_json(shares: Sequence[Share]) -> list[dict[str, Any]]:
    """Plain values; every ε with its kind."""
    return [{"name": share.name, **_plain(share.epsilon)} for share in shares]


def _all_accountants(configured: AnyAccountant) -> list[AnyAccountant]:
    others = [as_accountant(name) for name in accountants_by_name if name != configured.name]
    return [configured, *others]


def _epsilon(guarantee: Guarantee, accountant: AnyAccountant, phases: Sequence[Phase]) -> PrivacyBound:
    if accountant.kind is not Kind.CERTIFIED and len(phases) > _MOST_PHASES:
        raise UnsupportedEventError(f"More than {_MOST_PHASES} different lots: an estimate would take long.")
    return total(guarantee.charged_account(accountant), phases)


def _as_if_poisson(plan: PrivacyPlan, guarantee: Guarantee) -> PrivacyBound:
    """ε if lots were Poisson, as Abadi et al. (2016) quote for the shuffled lots they ran: no bound."""
    poisson, accountant = replace(plan, sampling=PoissonSampling()), RenyiAccountant()
    bound = total(guarantee.charged_account(accountant), list(poisson.phases(plan.steps)))
    return bound.described(kind=Kind.HEURISTIC, accountant="as_if_poisson")


def shares_of(plan: PrivacyPlan) -> tuple[Share, ...]:
    """ε of each part of a plan alone, by its accountant; nothing without privacy."""
    guarantee = plan.guarantee
    if guarantee is None:
        return ()
    # A filter's ε is that of its budget, whatever was spent: of a part alone its orders say more.
    accountant = FilterOrders() if guarantee.terms.declares_filter else guarantee.accountant
    shares = []
    for release in guarantee.releases:
        account = guarantee.open_account(accountant)
        account.charge(release.event)
        shares.append(Share(release.name, account.epsilon()))
    empty = guarantee.open_account(accountant)
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
