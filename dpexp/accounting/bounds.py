"""A privacy figure together with what kind of figure it is."""

from enum import StrEnum
from typing import Any, NoReturn

from dpexp.accounting.events import Relation

__all__ = ["Kind", "PrivacyBound"]


class Kind(StrEnum):
    """How a figure relates to the true one."""

    CERTIFIED = "certified"  # a proven upper bound
    ESTIMATE = "estimate"
    LOWER = "lower"
    ASYMPTOTIC = "asymptotic"
    HEURISTIC = "heuristic"


class PrivacyBound(float):
    """An ε (or δ) that behaves as a float and knows its kind.

    Attributes:
        kind: Proven upper bound, or what else.
        accountant: Name of the accountant that computed it.
        relation: The neighboring relation it holds for.
        delta: The δ an ε holds at, or None for a δ.
        order: The moment order λ that gave it, where there is one.
        saturated: Whether the best order was the last of the grid, so that a wider grid would be tighter.
    """

    kind: Kind
    accountant: str
    relation: Relation
    delta: float | None
    order: int | None
    saturated: bool

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
    ) -> "PrivacyBound":
        """Makes the bound; `value` must be >= 0 and not NaN."""
        if not value >= 0:
            raise ValueError(f"A privacy figure must be >= 0, found {value}.")
        self = super().__new__(cls, value)
        self.kind, self.accountant, self.relation = kind, accountant, relation
        self.delta, self.order, self.saturated = delta, order, saturated
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (float(self), dict(self.__dict__))

    def __repr__(self) -> str:
        return f"PrivacyBound({float(self)!r}, {self.kind}, {self.accountant})"

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
        if isinstance(other, PrivacyBound) and other.kind != self.kind:
            self._refuse(other)
        return other

    def _refuse(self, other: "PrivacyBound") -> NoReturn:
        raise TypeError(
            f"A {self.kind} figure ({self.accountant}) cannot be compared with a {other.kind} one "
            f"({other.accountant}): they bound the true ε in different ways. Compare floats if you must."
        )


def _rebuild(value: float, attributes: dict[str, Any]) -> PrivacyBound:
    return PrivacyBound(value, **attributes)
