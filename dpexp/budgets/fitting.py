"""What would fit into what is left of a budget: fewer lots, or more noise."""

import math
from collections.abc import Sequence
from dataclasses import replace

from dpexp.accounting import Composed, Event, Gaussian, Phase, Repeated
from dpexp.budgets.record import BudgetRecord
from dpexp.budgets.totals import Totals

__all__ = ["smallest_scale", "what_would_fit", "with_more_noise"]

_TOLERANCE = 1e-3  # relative, of the scale of the noise
_MOST = 1024.0
_FEW = 64  # different lots, up to which a scale is searched for


def what_would_fit(found: BudgetRecord, phases: Sequence[Phase]) -> str:
    """The message for a plan that does not fit: what is left, how many lots and which noise would."""
    totals, spent = found.totals, found.spent
    fit = totals.lots_within(spent, totals.priced(phases))
    asked = sum(phase.lots for phase in phases)
    scale = smallest_scale(found, phases) if len(phases) <= _FEW else None
    noise = (
        ""
        if scale is None
        else f", or all of them with every noise multiplier times {math.ceil(scale * 1e3) / 1e3:.3f}"
    )
    return (
        f"data.budget_id = {found.id!r}: the plan of {asked:,} releases does not fit into what is left of "
        f"{totals.in_words}.\n"
        f"Spent are {_percent(totals, found)} of the filter. What would fit: the first {fit:,} of the "
        f"{asked:,}{noise}. Nothing was reserved, and no data were touched.\n"
        "Lower T (privacy.steps), or raise σ; task=budget shows who spent it."
    )


def smallest_scale(found: BudgetRecord, phases: Sequence[Phase]) -> float | None:
    """The smallest factor c > 1, rounded up, by which more noise makes all phases fit; None if none does."""
    totals = found.totals

    def fits(scale: float) -> bool:
        noisier = [Phase(with_more_noise(phase.event, scale), phase.lots) for phase in phases]
        return totals.admits(totals.spent_after(found.spent, totals.priced(noisier)))

    low, high = 1.0, 2.0
    while not fits(high):
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > _TOLERANCE * low:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def with_more_noise(event: Event, scale: float) -> Event:
    """The same releases with every noise multiplier times `scale`."""
    match event:
        case Gaussian():
            return replace(event, noise_multiplier=event.noise_multiplier * scale)
        case Repeated():
            return Repeated(with_more_noise(event.event, scale), event.count)
        case Composed():
            return Composed(tuple(with_more_noise(part, scale) for part in event.events))
        case _:
            gaussian = with_more_noise(event.gaussian, scale)
            assert isinstance(gaussian, Gaussian)
            return replace(event, gaussian=gaussian)


def _percent(totals: Totals, found: BudgetRecord) -> str:
    fraction = totals.spent_fraction(found.spent)
    assert fraction is not None  # without a limit everything fits
    return f"{100 * fraction:.1f} %"
