"""What every data set declares about itself, publicly, and what it loads."""

import abc
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import UserError, integer, one_of, refuse
from dpexp.data.rule import Rule, check_rule
from dpexp.data.splits import Examples, Splits

__all__ = ["Dataset", "Privacy"]

Privacy = Literal["public", "private"]

FILL = "Leave such rows out or put a public constant there; a mean of private rows is a release, not in ε."
"""What to do about a value that is missing."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True, kw_only=True)
class Dataset(abc.ABC):
    """A labeled data set: public declarations, and the data behind `load`.

    The fields are facts that anyone may know and that privacy is computed from. None of them is ever
    filled in from the data: under the add/remove relation the true number of rows is itself secret.

    Attributes:
        name: What the data set is called, in file and run names.
        num_examples: The declared number N of training rows.
        num_classes: Targets are 0 … num_classes - 1.
        dimensions: Numbers per input.
        shape: Shape of an input where it is no vector, such as [1, 28, 28]; its product is `dimensions`.
        validation: Public rule for the training rows to cut off as the validation split: n for the last
            n, `{every: k}` or `{hashed: fraction}`; 0 lets the test split serve.
        validation_split: `public` or `private`: whether results on the rows cut off may be published.
        test_split: `public` or `private`: whether results on the test split may be published.
        budget_id: Name of the budget that everything computed from the training rows is charged to, which
            needs budget=dataset; None for none.
    """

    name: str
    num_examples: int
    num_classes: int
    dimensions: int
    shape: Sequence[int] | None = None
    validation: Rule = 0
    validation_split: Privacy
    test_split: Privacy
    budget_id: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise refuse("data.name", self.name, "a word of lower-case letters, digits, - and _")
        for field, least in {"num_examples": 1, "num_classes": 2, "dimensions": 1}.items():
            count = integer(f"data.{field}", getattr(self, field), at_least=least)
            object.__setattr__(self, field, count)  # 5.0 becomes 5, once, before anyone sees it
        if self.shape is not None:
            object.__setattr__(self, "shape", self._checked_shape(self.shape))
        object.__setattr__(self, "validation", check_rule("data.validation", self.validation))
        for field in ("validation_split", "test_split"):
            one_of(f"data.{field}", getattr(self, field), get_args(Privacy))

    @abc.abstractmethod
    def load(self) -> Splits:
        """Loads the examples, each of shape `input_shape`.

        Raises:
            UserError: If the data cannot be found, are damaged, or contradict what is declared here.
        """

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, as the model gets it where there are no features."""
        return (self.dimensions,) if self.shape is None else tuple(self.shape)

    @property
    def vocabulary(self) -> int | None:
        """Number of token ids where inputs are int64 token ids; None where they are float32 values."""
        return None

    @property
    def test_privacy(self) -> Privacy:
        """Whether results on the test split may be published."""
        return self.test_split

    @property
    def validation_privacy(self) -> Privacy:
        """Whether results on the validation split, which may be the test split, may be published."""
        return self.validation_split if self.validation else self.test_split

    def _checked_shape(self, shape: Any) -> tuple[int, ...]:
        if isinstance(shape, str) or not isinstance(shape, Sequence):
            raise refuse("data.shape", shape, "a list of sizes, or null for a vector")
        sizes = tuple(integer(f"data.shape[{index}]", size, at_least=1) for index, size in enumerate(shape))
        if math.prod(sizes) != self.dimensions:
            raise refuse("data.dimensions", self.dimensions, f"{math.prod(sizes)}, the product of data.shape")
        return sizes

    def _examples(
        self,
        inputs: NDArray[Any],
        labels: NDArray[np.integer[Any]],
        *,
        origin: tuple[str, str],
    ) -> Examples:
        """Joins inputs and labels row by row, provided that they are what is declared.

        Args:
            inputs: float32 values or int64 token ids, `dimensions` per row, shape `(N, …)`.
            labels: Class indices of shape `(N,)`.
            origin: What the inputs and the labels come from, for messages.

        Raises:
            UserError: With file and row, if they are not.
        """
        inputs_from, labels_from = origin
        if len(inputs) != len(labels):
            expected = f"{len(inputs)} labels, one for each row in {inputs_from}"
            raise refuse(f"rows of {labels_from}", len(labels), expected)
        if not len(inputs):
            raise UserError(f"{inputs_from} has no row, expected at least one.")
        flat = inputs.reshape(len(inputs), -1)
        if flat.shape[1] != self.dimensions:
            raise refuse(
                "data.dimensions",
                self.dimensions,
                f"{flat.shape[1]}, the numbers in a row of {inputs_from}",
                "Of a table, data.inputs names the columns to take; without it, all but the target are.",
            )
        self._check_values(flat, inputs_from)
        self._check_labels(labels, labels_from)
        return Examples(inputs=flat.reshape(len(flat), *self.input_shape), targets=labels.astype(np.int64))

    def _check_values(self, inputs: NDArray[Any], origin: str) -> None:
        sound = np.isfinite(inputs) if self.vocabulary is None else _within(inputs, self.vocabulary)
        if not sound.all():
            row, place = (int(number) for number in np.argwhere(~sound)[0])
            found, hint = inputs[row, place].item(), FILL
            expected = "a finite number"
            if self.vocabulary is not None:
                expected, hint = f"0 … {self.vocabulary - 1}", "data.tokens is the number of token ids."
            raise refuse(f"value {place} in row {row} (from 0) of {origin}", found, expected, hint)

    def _check_labels(self, labels: NDArray[Any], origin: str) -> None:
        foreign = np.flatnonzero(~_within(labels, self.num_classes))
        if foreign.size:
            row = int(foreign[0])
            expected = f"a class in 0 … {self.num_classes - 1}, as data.num_classes = {self.num_classes}"
            hint = "Number the classes from 0."
            raise refuse(f"label in row {row} (from 0) of {origin}", labels[row].item(), expected, hint)


def _within(numbers: NDArray[Any], count: int) -> NDArray[np.bool_]:
    within: NDArray[np.bool_] = (numbers >= 0) & (numbers < count)
    return within
