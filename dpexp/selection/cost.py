"""One (ε, δ) for the whole of a selection, from its dearest point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

from dpexp.accounting import PrivacyBound
from dpexp.accounting.selection import RenyiCurve, compose_all, curve_of, maximum
from dpexp.selection.candidate import Candidate
from dpexp.selection.law import Law

__all__ = ["Cost", "trial_curve"]


@final
@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a selection costs, and what else would.

    Attributes:
        whole: ε of the whole procedure at δ; certified.
        trial: ε of one trial, whichever its point.
        all_of_mean: ε of publishing everything of as many trials as there are on average, rounded down.
    """

    whole: PrivacyBound
    trial: PrivacyBound
    all_of_mean: PrivacyBound

    @classmethod
    def of(cls, trial: RenyiCurve, law: Law, delta: float) -> Self:
        """The cost, from a bound on every trial."""
        return cls(
            whole=law.price(trial).epsilon(delta),
            trial=trial.epsilon(delta),
            all_of_mean=compose_all(trial, int(law.mean_trials)).epsilon(delta),
        )


def trial_curve(candidates: Sequence[Candidate]) -> RenyiCurve:
    """A bound on one trial on a random point, the point being part of what it returns.

    The Rényi divergence of such a mixture is at most that of its worst part (quasi-convexity: van Erven and
    Harremoës 2014, arXiv 1206.2459v2, Theorem 13), at each order that of another point perhaps.

    Args:
        candidates: All points of the space; at least one.

    Raises:
        UnsupportedEventError: No bound is known for a part of some point's releases; it is named.
    """
    guarantee = candidates[0].plan.guarantee
    assert guarantee is not None
    events = dict.fromkeys(candidate.event for candidate in candidates)  # many points cost the same
    return maximum([curve_of(event, guarantee.relation) for event in events])
