"""What was spent, added up exactly: no rounding, whatever the order of runs and of lots given back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, final

__all__ = ["Moments", "Spending"]

Moments = tuple[float, ...]
"""α(λ) of one lot at the budget's orders, each proven from above; ∞ where nothing is proven."""


@final
@dataclass(frozen=True)
class Spending:
    """Σ count · α(λ) at each order, exactly: every float64 is a fraction.

    Attributes:
        sums: One per order; None stands for ∞, and stays, also when what was infinite is given back.
    """

    sums: tuple[Fraction | None, ...]

    @classmethod
    def nothing(cls, orders: int) -> Self:
        """Of so many orders."""
        return cls((Fraction(0),) * orders)

    def plus(self, moments: Sequence[float], count: int) -> "Spending":
        """With `count` lots more, or fewer where `count` is negative."""
        pairs = zip(self.sums, moments, strict=True)
        return Spending(tuple(_plus(total, alpha, count) for total, alpha in pairs))

    @property
    def written(self) -> str:
        """As text, without loss."""
        return " ".join("inf" if total is None else str(total) for total in self.sums)

    @classmethod
    def read(cls, text: str) -> Self:
        """From `written`."""
        return cls(tuple(None if word == "inf" else Fraction(word) for word in text.split()))

    @property
    def rounded_up(self) -> Moments:
        """As floats, none below the sum."""
        return tuple(math.inf if total is None else _up(total) for total in self.sums)


def _plus(total: Fraction | None, alpha: float, count: int) -> Fraction | None:
    return None if total is None or math.isinf(alpha) else total + count * Fraction(alpha)


def _up(total: Fraction) -> float:
    near = float(total)
    return near if total <= near else math.nextafter(near, math.inf)
