"""Labeled examples, and the three splits a training run sees."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import refuse

__all__ = ["Examples", "Splits", "cut"]


# eq=False: comparing arrays element by element has no single truth value.
@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Labeled examples, one per row.

    Attributes:
        inputs: float32 array of shape `(N, *shape)` with values in [0, 1].
        targets: int64 class indices of shape `(N,)`.
    """

    inputs: NDArray[np.float32]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.targets)

    def rows(self, chosen: slice | NDArray[np.bool_]) -> "Examples":
        """Returns the chosen rows: those of a slice (without a copy), or those where a mask is true."""
        return Examples(inputs=self.inputs[chosen], targets=self.targets[chosen])


@dataclass(frozen=True, kw_only=True, eq=False)
class Splits:
    """Training, validation and test examples.

    Attributes:
        train: What the mechanism trains on; the only split whose privacy is accounted for.
        validation: What choices between runs look at.
        test: What the final result is reported on.
        validation_is_test: Whether `validation` is the test split itself, because none was cut off.
    """

    train: Examples
    validation: Examples
    test: Examples
    validation_is_test: bool


def cut(train: Examples, test: Examples, *, validation: int) -> Splits:
    """Cuts the last `validation` training rows off as the validation split.

    The rule is public: it looks at row numbers only, never at a row's content.

    Args:
        train: All training rows, in the order of their file.
        test: The test rows.
        validation: Rows to cut off; 0 makes the test split the validation split.

    Raises:
        UserError: If no training row would remain.
    """
    if validation == 0:
        return Splits(train=train, validation=test, test=test, validation_is_test=True)
    remaining = len(train) - validation
    if remaining < 1:
        expected = f"a whole number below {len(train)}, the number of training rows"
        raise refuse("data.validation", validation, expected)
    return Splits(
        train=train.rows(slice(remaining)),
        validation=train.rows(slice(remaining, None)),
        test=test,
        validation_is_test=False,
    )
