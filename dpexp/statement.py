"""The guarantee of a run in words."""

from typing import Any

from dpexp.accounting import (
    Composed,
    Event,
    Quantity,
    Release,
    Repeated,
    Statement,
    without_amplification,
)
from dpexp.accounting.statement import KEYED, SECRET
from dpexp.experiment import Experiment
from dpexp.ledger import Ledger
from dpexp.plan import Guarantee, PrivacyPlan

__all__ = ["statement"]

_NOT_COVERED = (
    "figures of evaluation splits declared public",
    "timing of the steps, and the finite precision of floating point",
)
_AVERAGED = (
    "The figures are those of an average of the released weights (ema), which is made of them alone and "
    "costs nothing more; the last weights are released as well."
)


def statement(experiment: Experiment, plan: PrivacyPlan, ledger: Ledger) -> str:
    """What was protected, how well, under which assumptions, and what is not covered."""
    if experiment.whole is not None:
        return experiment.whole.statement
    if plan.guarantee is None:
        return f"No privacy: the model was trained on {experiment.data.name} without clipping and noise."
    guarantee = plan.guarantee
    words = str(
        Statement(
            epsilon=ledger.epsilon(),
            sampler=plan.sampling.in_words,
            releases=(*guarantee.releases, *_counts(plan)),
            steps=ledger.lots,
            num_examples=plan.num_examples,
            **_if_sampling_fails(plan, guarantee, ledger),
            randomness=KEYED if plan.deterministic else SECRET,
            not_covered=_NOT_COVERED,
            terms=_terms(guarantee, ledger),
        )
    )
    paragraphs = [words.rstrip()]
    paragraphs += [_forfeited(guarantee, ledger)] if ledger.lost else []
    paragraphs += [_public(experiment)] if experiment.declared_public else []
    paragraphs += [_AVERAGED] if experiment.options is not None and experiment.options.ema is not None else []
    paragraphs += [_strictness(experiment)] if experiment.strict else []
    return "\n\n".join(paragraphs)


def _public(experiment: Experiment) -> str:
    sources = "; ".join(experiment.declared_public)
    return f"Features: {sources}. These data were declared public, and nothing here protects their rows."


def _strictness(experiment: Experiment) -> str:
    unseen = [split for split in ("validation", "test") if not experiment.evaluates(split)]
    splits = f" The private rows of {' and '.join(unseen)} were not evaluated." if unseen else ""
    return (
        "Strict: no figure that the guarantee does not cover was recorded or shown: nothing under "
        "nonprivate/, no step times, true lot sizes, digest or row count. Noise was secure, "
        f"whatever privacy.noise said.{splits} Whoever sees the machine at work "
        "may still measure how long that took."
    )


def _terms(guarantee: Guarantee, ledger: Ledger) -> str:
    """What keeps ε where later choices follow earlier results, with the odometer's figure if there is one."""
    found = [companion.epsilon() for companion in ledger.companions]
    losses = [bound for bound in found if bound.quantity is Quantity.REALIZED_LOSS]
    figures = "".join(
        f" So far: {loss.in_print} at δ = {loss.delta!r} (realized loss, {loss.kind})." for loss in losses
    )
    return f"{guarantee.terms.statement}{figures}"


def _forfeited(guarantee: Guarantee, ledger: Ledger) -> str:
    """What is charged and is in no model."""
    again = len(ledger.releases) - len(guarantee.releases)
    words = f"The model has taken {ledger.steps:,} optimizer steps. Charged besides, after an interruption: "
    parts = [f"{ledger.forfeited_lots:,} lots that were reserved and are not in the model"]
    parts += [f"{again} one-time releases that were made again"] if again > 0 else []
    parts += ["each epoch that was drawn anew"] if ledger.plan.lots_per_charge > 1 else []
    return f"{words}{'; '.join(parts)}."


def _if_sampling_fails(plan: PrivacyPlan, guarantee: Guarantee, ledger: Ledger) -> dict[str, Any]:
    if plan.sampling.if_known is None:
        return {"if_sampling_fails": None}
    bound = without_amplification(
        _everything(plan, guarantee, ledger), delta=guarantee.budget.delta, relation=guarantee.relation
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


def _everything(plan: PrivacyPlan, guarantee: Guarantee, ledger: Ledger) -> Event:
    releases = (release.event for release in guarantee.releases)
    # Where T may be prolonged, the longest: whatever stop is chosen from results lies before it.
    phases = (*ledger.lost, *plan.phases(guarantee.terms.longest or ledger.steps))
    return Composed((*releases, *(Repeated(phase.event, phase.charges) for phase in phases)))
