"""A privacy figure together with what kind of figure it is."""

from decimal import ROUND_CEILING, Context, Decimal
from enum import StrEnum
from typing import Any, NoReturn

from dpexp.accounting.events import Relation

__all__ = ["Kind", "PrivacyBound", "Quantity"]


class Kind(StrEnum):
    """How a figure relates to the true one."""

    CERTIFIED = "certified"  # a proven upper bound
    ESTIMATE = "estimate"
    LOWER = "lower"
    ASYMPTOTIC = "asymptotic"
    HEURISTIC = "heuristic"


class Quantity(StrEnum):
    """What a figure measures. From the fourth on they are solutions for a target (ε, δ)."""

    EPSILON = "epsilon"
    DELTA = "delta"
    REALIZED_LOSS = "realized_loss"  # of an odometer: holds for the outputs seen, is no ε of a mechanism
    NOISE_MULTIPLIER = "noise_multiplier"
    STEPS = "steps"
    SAMPLING_PROBABILITY = "sampling_probability"
    LOT_SIZE = "lot_size"
    NOISE_SCALE = "noise_scale"


class PrivacyBound(float):
    """A figure that behaves as a float and knows its kind.

    Arithmetic gives plain floats. Comparing two bounds of different kinds, or of different quantities,
    raises `TypeError`; comparing with a plain number does not.

    Attributes:
        kind: Proven upper bound, or what else. For a solved quantity (σ, T, q): what proves the target.
        accountant: Name of the accountant that computed it.
        relation: The neighboring relation it holds for.
        delta: The δ an ε holds at, or None for a δ.
        order: The moment order λ that gave it, where there is one.
        saturated: Whether the best order was the last of the grid, so that a wider grid would be tighter.
        quantity: What it measures; an ε where δ is given, else a δ, unless said otherwise.
        sampler: How lots are drawn, in words ("poisson"); empty where several or none.
    """

    kind: Kind
    accountant: str
    relation: Relation
    delta: float | None
    order: int | None
    saturated: bool
    quantity: Quantity
    sampler: str

    def __new__(
        cls,
        value: float,
        *,
        kind: Kind,
        accountant: str,
        relation: Relation,
        delta: float | None = None,
        order: int | None = None,
        saturated: bool = False,
        quantity: Quantity | None = None,
        sampler: str = "",
    ) -> "PrivacyBound":
        """Makes the bound; `value` must be >= 0 and not NaN."""
        if not value >= 0:
            raise ValueError(f"Expected a privacy figure >= 0, found {value} ({accountant}).")
        self = super().__new__(cls, value)
        self.kind, self.accountant, self.relation = kind, accountant, Relation(relation)
        self.delta = None if delta is None else float(delta)
        self.order, self.saturated = order, saturated
        self.quantity = quantity or (Quantity.DELTA if delta is None else Quantity.EPSILON)
        self.sampler = sampler
        return self

    def described(self, **attributes: Any) -> "PrivacyBound":
        """The same figure with some attributes replaced (`sampler="poisson"`)."""
        return PrivacyBound(float(self), **{**self.__dict__, **attributes})

    def with_value(self, value: float) -> "PrivacyBound":
        """Another figure with the same attributes."""
        return PrivacyBound(value, **self.__dict__)

    @property
    def warning(self) -> str | None:
        """What makes the figure larger than it need be, if anything is known to."""
        if not self.saturated:
            return None
        return (
            f"The best moment order, λ = {self.order}, is the last one that accountant={self.accountant} "
            f"tries: more orders would prove a smaller figure. Set accountant={self.tighter}."
        )

    @property
    def tighter(self) -> str:
        """Accountants that may prove a smaller figure than this one's does with its orders."""
        return "pld" if str(self.accountant).startswith("rdp") else "rdp or pld"

    @property
    def in_print(self) -> str:
        """Rounded up to four digits behind the point, as tables have it, and fewer from 10 on."""
        return self.rounded_up(5 if 1 <= self < 10 else 4)

    def rounded_up(self, digits: int) -> str:
        """The figure for print: at most `digits` >= 1 significant digits; reads back as no less.

        An ε of 1.25857 is "1.26" with three digits and "1.3" with two: what is printed stays proven. Use it
        for ε, δ and σ, whose private side is up, not for a number of steps.
        """
        exact = Decimal(repr(float(self)))  # the shortest decimal that reads back as this float
        if exact.is_infinite() or exact == 0:
            return "∞" if exact else "0"
        rounded = Context(prec=digits, rounding=ROUND_CEILING).plus(exact)
        return f"{rounded.normalize():f}" if -4 <= rounded.adjusted() <= 6 else f"{rounded.normalize():e}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (float(self), dict(self.__dict__))

    def __repr__(self) -> str:
        return f"PrivacyBound({float(self)!r}, {self.quantity}, {self.kind}, {self.accountant})"

    def __lt__(self, other: float) -> bool:
        return float.__lt__(self, self._comparable(other))

    def __le__(self, other: float) -> bool:
        return float.__le__(self, self._comparable(other))

    def __gt__(self, other: float) -> bool:
        return float.__gt__(self, self._comparable(other))

    def __ge__(self, other: float) -> bool:
        return float.__ge__(self, self._comparable(other))

    def __eq__(self, other: object) -> bool:
        return float.__eq__(self, self._comparable(other)) if isinstance(other, int | float) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__

    def _comparable(self, other: Any) -> Any:
        if isinstance(other, PrivacyBound):
            if other.kind != self.kind:
                self._refuse(other, str(self.kind), str(other.kind))
            if other.quantity != self.quantity:
                self._refuse(other, str(self.quantity), str(other.quantity))
        return other

    def _refuse(self, other: "PrivacyBound", own: str, found: str) -> NoReturn:
        raise TypeError(
            f"Expected two figures of one kind and quantity, found {own} ({self.accountant}) and {found} "
            f"({other.accountant}): the comparison would say nothing about the true values. "
            "Compare float(a) and float(b) if you must."
        )


def _rebuild(value: float, attributes: dict[str, Any]) -> PrivacyBound:
    return PrivacyBound(value, **attributes)
