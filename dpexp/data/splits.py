"""Labeled examples in memory, and the three splits a training run sees."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import UserError, refuse
from dpexp.data.rows import Rows
from dpexp.data.rule import Rule, selected

__all__ = ["AnyExamples", "Examples", "Splits", "cut", "in_memory", "parts"]


# eq=False: comparing arrays element by element has no single truth value.
@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Labeled examples in memory, one per row.

    Attributes:
        inputs: Array of shape `(N, *shape)`: float32 values, finite, or int64 token ids.
        targets: int64 class indices of shape `(N,)`.
    """

    inputs: NDArray[Any]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.targets)

    def rows(self, chosen: slice | NDArray[np.bool_]) -> "Examples":
        """Returns the chosen rows: those of a slice (without a copy), or those where a mask is true."""
        return Examples(inputs=self.inputs[chosen], targets=self.targets[chosen])


AnyExamples = Examples | Rows
"""In memory, or read row by row when a lot needs them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Splits:
    """Training, validation and test examples.

    Attributes:
        train: What the mechanism trains on; the only split that may enter lots, and the only one whose
            privacy is accounted for.
        validation: What choices between runs look at.
        test: What the final result is reported on.
        validation_is_test: Whether `validation` is the test split itself, because none was cut off.
    """

    train: AnyExamples
    validation: AnyExamples
    test: AnyExamples
    validation_is_test: bool

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            if not len(getattr(self, name)):
                raise UserError(f"The {name} split has no row, expected at least one.")


def cut(train: AnyExamples, test: AnyExamples, *, validation: Rule) -> Splits:
    """Cuts the training rows that a public rule selects off as the validation split.

    The rule looks at row numbers only, never at a row's content.

    Args:
        train: All training rows, in the order of their file.
        test: The test rows.
        validation: The rule; 0 makes the test split the validation split.

    Raises:
        UserError: If a split would have no row.
    """
    if validation == 0:
        return Splits(train=train, validation=test, test=test, validation_is_test=True)
    if isinstance(validation, int) and validation >= len(train):
        expected = f"a whole number below {len(train)}, the number of training rows"
        raise refuse("data.validation", validation, expected)
    inside, outside = parts(train, validation)
    return Splits(train=outside, validation=inside, test=test, validation_is_test=False)


def in_memory(examples: AnyExamples) -> Examples:
    """The examples, all of them read.

    Raises:
        UserError: If a row cannot be read, or is not what is declared; it is named.
    """
    if isinstance(examples, Examples):
        return examples
    inputs, targets = examples.read(range(len(examples)))
    return Examples(inputs=inputs, targets=targets)


def parts(examples: AnyExamples, rule: Rule) -> tuple[AnyExamples, AnyExamples]:
    """The examples that a rule selects, and the others."""
    if isinstance(rule, int):
        kept = len(examples) - rule
        return examples.rows(slice(kept, None)), examples.rows(slice(kept))  # without a copy
    chosen = selected(rule, len(examples))
    return examples.rows(chosen), examples.rows(~chosen)
