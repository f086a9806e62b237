"""Figures in words: ε rounded up, accuracies with their spread, the guarantee of a run in one line."""

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from statistics import fmean

from dpexp.report.stored import StoredRun
from dpexp.report.terms import Terms

__all__ = ["accuracy_in_words", "delta_in_words", "epsilon_in_words", "guarantee_in_words"]

_DIGITS = 5


def epsilon_in_words(epsilon: float) -> str:
    """ε with five significant digits, rounded up: never shown smaller than it is."""
    if math.isinf(epsilon):
        return "∞"
    if epsilon == 0:
        return "0"
    rounded = Context(prec=_DIGITS, rounding=ROUND_CEILING).plus(Decimal(repr(epsilon)))
    return f"{rounded:f}" if -4 <= rounded.adjusted() <= 6 else f"{rounded.normalize():e}"


def delta_in_words(delta: float | None) -> str:
    """δ as it was set."""
    return "not recorded" if delta is None else f"{delta!r}"


def accuracy_in_words(accuracies: Sequence[float]) -> str:
    """The mean in percent, and least and greatest where there are several."""
    words = f"{fmean(accuracies):.2%}"
    return words if len(accuracies) == 1 else f"{words} ({min(accuracies):.2%} – {max(accuracies):.2%})"


def guarantee_in_words(run: StoredRun) -> str:
    """What is guaranteed by a run, in one line."""
    if not run.is_private and not run.is_selection:
        return "no privacy: nothing is guaranteed"
    spent = run.spent
    if spent is None:
        return "no ε on record"
    terms = Terms.of(run)
    figure = f"ε ≤ {epsilon_in_words(spent)}" if terms.kind == "certified" else f"ε ≈ {spent:.5g}"
    words = (
        f"{figure} at δ = {delta_in_words(run.delta)}, {terms.relation}; {terms.kind}, {terms.accountant}, "
        f"{terms.sampler} lots"
    )
    if run.is_selection:
        words = f"of the whole private selection: {words}"
    if not run.finished:
        words = f"charged when last recorded: {words}"
    return f"arithmetic, not a guarantee: {words}" if run.is_deterministic else words
