"""Data sets whose validation split may be a file or data set of its own."""

from dataclasses import dataclass
from typing import Any

from dpexp._validate import refuse
from dpexp.data.dataset import Dataset, Privacy

__all__ = ["HeldOut"]


@dataclass(frozen=True, kw_only=True)
class HeldOut(Dataset):
    """A data set with a third source.

    Attributes:
        held_out: Where the validation split comes from, in place of the rule `validation`; None for the rule.
    """

    held_out: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out is not None and self.validation != 0:
            raise refuse("data.validation", self.validation, "0 where data.held_out is set")

    @property
    def validation_privacy(self) -> Privacy:
        """Whether results on the validation split, which may be the test split, may be published."""
        return super().validation_privacy if self.held_out is None else self.validation_split
