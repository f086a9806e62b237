"""One panel of Figure 5: one value moves, all others stay at their reference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from dpexp import _validate

__all__ = ["Sweep"]


@final
@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A value and the overrides that set it.

    Attributes:
        label: What the axis says.
        overrides: As on the command line, `{value}` standing for the value; all of them at each point.
        values: The values, in the order in which they are trained.
        reference: The value of the reference setting, marked in the plot; None for no mark.
    """

    label: str
    overrides: Sequence[str]
    values: Sequence[float]
    reference: float | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise _validate.refuse(f"values of {self.label}", list(self.values), "at least one number")
        for value in self.values:
            _validate.number(f"values of {self.label}", value)
        for override in self.overrides:
            if "{value}" not in override:
                expected = "an override with {value} in it, such as privacy.lot_size={value}"
                raise _validate.refuse(f"overrides of {self.label}", override, expected)

    def at(self, value: float) -> list[str]:
        """The overrides that set it to `value`."""
        return [override.replace("{value}", f"{value!r}") for override in self.overrides]
