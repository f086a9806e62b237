"""What can be charged lot by lot, so that the next lot may depend on the last one's release."""

from collections.abc import Iterable
from itertools import chain

from dpexp import _validate
from dpexp.accounting import (
    AnyAccountant,
    BallsAndBins,
    Composed,
    Event,
    Partitioned,
    Phase,
    Repeated,
    UnsupportedEventError,
)
from dpexp.accounting.accountants import AbstractLogMomentAccountant

__all__ = ["require_lotwise", "require_moments"]


def require_moments(accountant: AnyAccountant, rule: str) -> None:
    """Refuses a configured accountant that adds up something else than log moments."""
    if not isinstance(accountant, AbstractLogMomentAccountant):
        raise _validate.refuse(
            "accountant",
            accountant.name,
            f"moments or rdp, with budget={rule}: a filter adds up log moments",
            "Loss distributions and trade-off curves are no filter in general: docs/theory/adaptivity.md.",
        )


def require_lotwise(phases: Iterable[Phase], rule: str) -> None:
    """Refuses lots that are drawn together for a whole epoch: none of them has a price of its own.

    Raises:
        UnsupportedEventError: There are such lots.
    """
    for phase in phases:
        for event in _parts(phase.event):
            if isinstance(event, Partitioned | BallsAndBins):
                raise UnsupportedEventError(
                    f"budget={rule}: {event!r} draws the lots of an epoch together, so that none of them has "
                    "a price of its own. Set sampling=poisson, or budget=run."
                )


def _parts(event: Event) -> Iterable[Event]:
    match event:
        case Repeated():
            return _parts(event.event)
        case Composed():
            return chain.from_iterable(_parts(part) for part in event.events)
    return (event,)
