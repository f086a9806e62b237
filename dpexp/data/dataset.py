"""What every data set declares about itself, publicly, and what it loads."""

import abc
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import integer, one_of, refuse
from dpexp.data.splits import Examples, Splits

__all__ = ["Dataset", "Privacy"]

Privacy = Literal["public", "private"]

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
        dimensions: Numbers per input vector.
        validation: Training rows to cut off as the validation split; 0 lets the test split serve.
        validation_split: `public` or `private`: whether results on the rows cut off may be published.
        test_split: `public` or `private`: whether results on the test split may be published.
        budget_id: Name of the budget that everything computed from the training rows is charged to, which
            needs budget=dataset; None for none.
    """

    name: str
    num_examples: int
    num_classes: int
    dimensions: int
    validation: int = 0
    validation_split: Privacy
    test_split: Privacy
    budget_id: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise refuse("data.name", self.name, "a word of lower-case letters, digits, - and _")
        for field, least in {"num_examples": 1, "num_classes": 2, "dimensions": 1, "validation": 0}.items():
            count = integer(f"data.{field}", getattr(self, field), at_least=least)
            object.__setattr__(self, field, count)  # 5.0 becomes 5, once, before anyone sees it
        for field in ("validation_split", "test_split"):
            one_of(f"data.{field}", getattr(self, field), get_args(Privacy))

    @abc.abstractmethod
    def load(self) -> Splits:
        """Loads the examples, as vectors of shape `(dimensions,)` with values in [0, 1].

        Raises:
            UserError: If the data cannot be found, are damaged, or contradict what is declared here.
        """

    @property
    def test_privacy(self) -> Privacy:
        """Whether results on the test split may be published."""
        return self.test_split

    @property
    def validation_privacy(self) -> Privacy:
        """Whether results on the validation split, which may be the test split, may be published."""
        return self.validation_split if self.validation else self.test_split

    def _examples(
        self,
        pixels: NDArray[np.float32],
        labels: NDArray[np.integer[Any]],
        *,
        origin: tuple[str, str],
    ) -> Examples:
        """Joins pixels and labels row by row, provided that they are what is declared.

        Args:
            pixels: Values in [0, 1] of shape `(N, *shape)`.
            labels: Class indices of shape `(N,)`.
            origin: What the pixels and the labels come from, for messages.
        """
        pixels_from, labels_from = origin
        if len(pixels) != len(labels):
            expected = f"{len(pixels)} labels, one for each image in {pixels_from}"
            raise refuse(f"rows of {labels_from}", len(labels), expected)
        inputs = pixels.reshape(len(pixels), -1)
        if inputs.shape[1] != self.dimensions:
            expected = f"{inputs.shape[1]}, the pixels of an image in {pixels_from}"
            raise refuse("data.dimensions", self.dimensions, expected)
        foreign = np.flatnonzero((labels < 0) | (labels >= self.num_classes))
        if foreign.size:
            row = int(foreign[0])
            expected = f"a class in 0 … {self.num_classes - 1}, as data.num_classes = {self.num_classes}"
            raise refuse(f"label in row {row} (from 0) of {labels_from}", int(labels[row]), expected)
        return Examples(inputs=inputs, targets=labels.astype(np.int64))
