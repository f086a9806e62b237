"""The interface of every accountant."""

import math
from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, Self, TypeVar

from dpexp import _validate
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.events import Event, Relation

__all__ = [
    "AbstractAccountant",
    "AnyAccountant",
    "Cost",
    "UnsupportedEventError",
    "checked_epsilon",
    "delta_from_log",
]

_MOST_EPSILON = 1e150  # larger targets are answered as this one, at which δ is no smaller
_SMALLEST_DELTA = 1e-300


class UnsupportedEventError(_validate.UserError):
    """The accountant has no bound for an event under a relation."""


class Cost(Protocol):
    """What a composition costs, in an accountant's own currency; costs add under composition."""

    def __add__(self, other: Self, /) -> Self:
        """The cost of both."""
        ...

    def __rmul__(self, count: int, /) -> Self:
        """The cost of `count` >= 0 of the same."""
        ...


C = TypeVar("C", bound=Cost)


class AbstractAccountant(ABC, Generic[C]):
    """Prices events, and converts costs to ε or δ. Accountants hold no state: `budget.Account` does.

    Attributes:
        name: The name in config and metrics.
        kind: What kind of figure it gives; only a certified one may be a run's configured accountant.
        quick: Whether ε of a cost takes microseconds, so that it can be asked for after every lot.
    """

    name: str
    kind: Kind
    quick: bool = False

    @property
    @abstractmethod
    def zero(self) -> C:
        """The cost of releasing nothing."""

    @abstractmethod
    def price(self, event: Event, relation: Relation) -> C:
        """The cost of one event under a neighboring relation.

        Raises:
            UnsupportedEventError: No bound is known here for a part of the event; it is named.
        """

    @abstractmethod
    def epsilon(self, cost: C, delta: float, relation: Relation) -> PrivacyBound:
        """The smallest ε that this cost proves at `delta` in (0, 1)."""

    @abstractmethod
    def delta(self, cost: C, epsilon: float, relation: Relation) -> PrivacyBound:
        """The smallest δ <= 1 that this cost proves at `epsilon` >= 0."""


AnyAccountant = AbstractAccountant[Any]


def checked_epsilon(epsilon: float) -> float:
    """A target ε >= 0 as a float, at most 10¹⁵⁰ so that its square is finite.

    Raises:
        UserError: It is negative, not finite, or no number.
    """
    return min(_validate.number("epsilon", epsilon, at_least=0), _MOST_EPSILON)


def delta_from_log(log_delta: float) -> float:
    """exp(log δ) rounded up, in [1e-300, 1]; 0 only at -∞, which is what an empty composition has."""
    if log_delta == -math.inf:
        return 0.0
    return min(max(math.exp(min(log_delta, 0.0)) * (1 + 1e-15), _SMALLEST_DELTA), 1.0)
