"""The guarantee of a run in words."""

from typing import Any

from dpexp.accounting import Composed, Event, Release, Repeated, Statement, without_amplification
from dpexp.accounting.statement import KEYED, SECRET
from dpexp.experiment import Experiment
from dpexp.ledger import Ledger
from dpexp.plan import Guarantee, PrivacyPlan

__all__ = ["statement"]

_NOT_COVERED = (
    "figures of evaluation splits declared public",
    "timing of the steps, and the finite precision of floating point",
)


def statement(experiment: Experiment, plan: PrivacyPlan, ledger: Ledger) -> str:
    """What was protected, how well, under which assumptions, and what is not covered."""
    if plan.guarantee is None:
        return f"No privacy: the model was trained on {experiment.data.name} without clipping and noise."
    guarantee = plan.guarantee
    return str(
        Statement(
            epsilon=ledger.epsilon(),
            sampler=plan.sampling.in_words,
            releases=(*guarantee.releases, *_counts(plan)),
            steps=ledger.lots,
            num_examples=plan.num_examples,
            **_if_sampling_fails(plan, guarantee, ledger.lots),
            randomness=KEYED if plan.deterministic else SECRET,
            not_covered=_NOT_COVERED,
        )
    )


def _if_sampling_fails(plan: PrivacyPlan, guarantee: Guarantee, lots: int) -> dict[str, Any]:
    if plan.sampling.if_known is None:
        return {"if_sampling_fails": None}
    bound = without_amplification(
        _everything(plan, guarantee, lots), delta=guarantee.budget.delta, relation=guarantee.relation
    )
    return {"if_sampling_fails": bound, "failed_sampling": plan.sampling.if_known}


def _counts(plan: PrivacyPlan) -> tuple[Release, ...]:
    """What adaptive clipping asks of each lot; its price is in the lots' own."""
    queries = {group.name: group.query for group in plan.step(0).groups}
    return tuple(
        Release(f"the noisy counts that move the clip norm of {name}", query.event)
        for name, query in queries.items()
        if query is not None
    )


def _everything(plan: PrivacyPlan, guarantee: Guarantee, lots: int) -> Event:
    releases = (release.event for release in guarantee.releases)
    return Composed((*releases, *(Repeated(phase.event, phase.charges) for phase in plan.phases(lots))))
