"""Handwritten digits of 8×8 pixels, which come with scikit-learn and need no network."""

from dataclasses import dataclass
from typing import final

import numpy as np

from dpexp.data.dataset import Dataset, Privacy
from dpexp.data.splits import Splits, cut

__all__ = ["Digits"]

_FULL_INK = 16  # Each value counts the inked pixels in a block of 4×4.


@final
@dataclass(frozen=True, kw_only=True)
class Digits(Dataset):
    """The 1797 test digits of Alpaydin and Kaynak (1998), in scikit-learn's order.

    Every fifth row (row number % 5 == 4, from 0) is a test row: 359 rows; the other 1438 are training
    rows. The rule is public, as it looks at row numbers only.
    """

    name: str = "digits"
    num_examples: int = 1438
    num_classes: int = 10
    dimensions: int = 64
    validation_split: Privacy = "private"
    test_split: Privacy = "public"

    def load(self) -> Splits:
        """Loads float32 pixel vectors of shape `(N, 64)` in [0, 1].

        Raises:
            UserError: If the data contradict what is declared.
        """
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        origin = ("scikit-learn's load_digits", "scikit-learn's load_digits")
        digits = self._examples(np.divide(pixels, _FULL_INK, dtype=np.float32), labels, origin=origin)
        is_test = np.arange(len(digits)) % 5 == 4
        return cut(digits.rows(~is_test), digits.rows(is_test), validation=self.validation)
