"""Clip norm, noise multiplier, lot size and learning rate as functions of the lot's index."""

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from dpexp import _validate

__all__ = ["AbstractSchedule", "Constant", "Exponential", "Linear", "Step", "as_lot_size", "as_schedule"]

_UNITS = ("lots", "epochs")
_FORMS = (
    "a number or a schedule, such as {_target_: dpexp.schedules.Linear, start: 8, end: 4, over: 1000} "
    "(Constant, Linear, Exponential, Step)"
)


class AbstractSchedule(ABC):
    """A monotone function of the lot's index t >= 0.

    Lengths are given in lots, or in epochs of N/L lots each.
    """

    @abstractmethod
    def at(self, lot: int, lots_per_epoch: float) -> float:
        """The value at lot t >= 0."""

    @abstractmethod
    def changes_after(self, lot: int, lots_per_epoch: float) -> float:
        """The first lot after t at which the value may differ from that at t; ∞ if it never does."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """A short form for tables, such as `8 → 4 over 10 epochs`."""


@final
@dataclass(frozen=True)
class Constant(AbstractSchedule):
    """The same value at every lot."""

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "value",
            _validate.number("schedule.value", self.value, hint="It is optimizer.lr, unless you set it."),
        )

    def at(self, lot: int, lots_per_epoch: float) -> float:
        """The value."""
        return self.value

    def changes_after(self, lot: int, lots_per_epoch: float) -> float:
        """Never."""
        return math.inf

    @property
    def in_words(self) -> str:
        """The number, in full: a solved σ reads back as no less."""
        return f"{self.value:g}" if float(f"{self.value:g}") == self.value else repr(self.value)


@final
@dataclass(frozen=True, kw_only=True)
class Linear(AbstractSchedule):
    """From `start` in a straight line to `end` over `over` units, then constant."""

    start: float
    end: float
    over: float
    unit: str = "lots"

    def __post_init__(self) -> None:
        _check_numbers(start=self.start, end=self.end)
        _check_length("over", self.over, self.unit)

    def at(self, lot: int, lots_per_epoch: float) -> float:
        """Start + (end - start)·t/over, and `end` from `over` on."""
        progress = min(lot / _in_lots(self.over, self.unit, lots_per_epoch), 1.0)
        value = self.start + progress * (self.end - self.start)
        low, high = sorted((self.start, self.end))
        return min(max(value, low), high)

    def changes_after(self, lot: int, lots_per_epoch: float) -> float:
        """The next lot, until the end is reached."""
        moving = lot < _in_lots(self.over, self.unit, lots_per_epoch) and self.start != self.end
        return lot + 1 if moving else math.inf

    @property
    def in_words(self) -> str:
        """Start, end and length."""
        return f"{self.start:g} → {self.end:g} over {self.over:g} {self.unit}"


@final
@dataclass(frozen=True, kw_only=True)
class Exponential(AbstractSchedule):
    """`start`, multiplied by `factor` > 0 smoothly over every `every` units."""

    start: float
    factor: float
    every: float
    unit: str = "lots"

    def __post_init__(self) -> None:
        _check_numbers(start=self.start)
        _validate.number("schedule.factor", self.factor, above=0)
        _check_length("every", self.every, self.unit)

    def at(self, lot: int, lots_per_epoch: float) -> float:
        """Start · factor^(t/every)."""
        return _grown(self.start, self.factor, lot / _in_lots(self.every, self.unit, lots_per_epoch))

    def changes_after(self, lot: int, lots_per_epoch: float) -> float:
        """The next lot."""
        return math.inf if self.factor == 1 else lot + 1

    @property
    def in_words(self) -> str:
        """Start, factor and length."""
        return f"{self.start:g} × {self.factor:g} per {self.every:g} {self.unit}"


@final
@dataclass(frozen=True, kw_only=True)
class Step(AbstractSchedule):
    """`start`, multiplied by `factor` > 0 at once after every `every` units."""

    start: float
    factor: float
    every: float
    unit: str = "lots"

    def __post_init__(self) -> None:
        _check_numbers(start=self.start)
        _validate.number("schedule.factor", self.factor, above=0)
        _check_length("every", self.every, self.unit)

    def at(self, lot: int, lots_per_epoch: float) -> float:
        """Start · factor^⌊t/every⌋."""
        return _grown(self.start, self.factor, self._stairs(lot, lots_per_epoch))

    def changes_after(self, lot: int, lots_per_epoch: float) -> float:
        """The lot of the next stair."""
        if self.factor == 1:
            return math.inf
        stair = self._stairs(lot, lots_per_epoch)
        following = max(math.ceil((stair + 1) * _in_lots(self.every, self.unit, lots_per_epoch)), lot + 1)
        # Rounding may put the product a lot beside where the quotient of `_stairs` steps.
        while following - 1 > lot and self._stairs(following - 1, lots_per_epoch) > stair:
            following -= 1
        while self._stairs(following, lots_per_epoch) == stair:
            following += 1
        return following

    def _stairs(self, lot: int, lots_per_epoch: float) -> int:
        return math.floor(lot / _in_lots(self.every, self.unit, lots_per_epoch))

    @property
    def in_words(self) -> str:
        """Start, factor and length of a stair."""
        return f"{self.start:g} × {self.factor:g} every {self.every:g} {self.unit}"


def as_schedule(key: str, value: Any) -> AbstractSchedule:
    """A number as a constant schedule, a schedule as it is; anything else is a `UserError`."""
    if isinstance(value, AbstractSchedule):
        return value
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return Constant(_validate.number(key, value))
    raise _validate.refuse(key, value, _FORMS)


def as_lot_size(key: str, value: Any) -> AbstractSchedule:
    """`as_schedule` for a lot size, which defines the epoch and so cannot be measured in epochs."""
    schedule = as_schedule(key, value)
    if getattr(schedule, "unit", "lots") == "epochs":
        raise _validate.refuse(
            f"{key}.unit", "epochs", "lots: an epoch is N/L lots, and L is what varies here"
        )
    return schedule


def _grown(start: float, factor: float, times: float) -> float:
    try:
        return float(start * factor**times)
    except OverflowError:
        return math.copysign(math.inf, start)


def _in_lots(length: float, unit: str, lots_per_epoch: float) -> float:
    return length * lots_per_epoch if unit == "epochs" else length


def _check_numbers(**values: Any) -> None:
    for name, value in values.items():
        _validate.number(f"schedule.{name}", value)


def _check_length(name: str, length: Any, unit: Any) -> None:
    _validate.number(f"schedule.{name}", length, above=0)
    _validate.one_of("schedule.unit", unit, _UNITS)
