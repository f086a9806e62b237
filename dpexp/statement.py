"""The guarantee of a run in words."""

from dpexp.accounting.bounds import Kind
from dpexp.console import shown_up
from dpexp.experiment import Experiment
from dpexp.ledger import Ledger
from dpexp.plan import Guarantee, PrivacyPlan

__all__ = ["statement"]

NOT_COVERED = (
    "Not covered: metrics under nonprivate/, figures of splits declared public, the choice of hyperparameters "
    "by looking at results of other runs on these data, timing, and the finite precision of floating point."
)


def statement(experiment: Experiment, plan: PrivacyPlan, ledger: Ledger) -> str:
    """What was protected, how well, under which assumptions, and what is not covered."""
    if plan.guarantee is None:
        return f"No privacy: the model was trained on {experiment.data.name} without clipping and noise.\n"
    lines = [_claim(experiment, plan.guarantee, ledger), _covered(plan, ledger), NOT_COVERED]
    if plan.deterministic:
        lines.insert(0, "ARITHMETIC, NOT A GUARANTEE: lots and noise were keyed by the seed, which is known.")
    return "\n".join(lines) + "\n"


def _claim(experiment: Experiment, guarantee: Guarantee, ledger: Ledger) -> str:
    epsilon = ledger.epsilon()
    assert epsilon.kind is Kind.CERTIFIED
    return (
        f"The released model is (ε = {shown_up(epsilon)}, δ = {guarantee.budget.delta:g})-differentially private "
        f"with respect to {guarantee.relation.in_words} of the training rows of {experiment.data.name}: whoever "
        f"sees it can hardly tell whether any one row was used. The figure is a proven upper bound "
        f"({epsilon.accountant} accountant)."
    )


def _covered(plan: PrivacyPlan, ledger: Ledger) -> str:
    lots = f"{ledger.lots:,} noisy steps"
    releases = " and ".join([*ledger.releases, lots])
    return (
        f"It covers {releases}, given that {plan.sampling.in_words}, that lots and noise stay secret, and that "
        "σ, C, L, T and N were fixed without looking at the data."
    )
