"""Examples that are read row by row, from a map-style data set such as `torch.utils.data.Dataset`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import UserError, refuse

__all__ = ["MapStyle", "Rows"]


class MapStyle(Protocol):
    """What is read: `len(source)` rows, each `source[i]` a pair of input and class."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Labeled examples that are read when they are needed.

    Attributes:
        name: What the split is called in messages, such as `data.train`.
        source: Where rows come from.
        shape: Shape of one input.
        dtype: `float32` or `int64`; what a row holds is converted to it.
        num_classes: Targets are 0 … num_classes - 1.
        vocabulary: Number of token ids where inputs are such; None where they are values.
        workers: Processes that read ahead; 0 reads in this one, when a lot is asked for.
        prefetch: Lots that each worker reads ahead.
        numbers: Row numbers in the source, shape `(N,)`; None for all.
    """

    name: str
    source: MapStyle
    shape: tuple[int, ...]
    dtype: str
    num_classes: int
    vocabulary: int | None = None
    workers: int = 0
    prefetch: int = 2
    numbers: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.source) if self.numbers is None else len(self.numbers)

    def rows(self, chosen: slice | NDArray[np.bool_]) -> "Rows":
        """The chosen rows; reads none."""
        numbers = np.arange(len(self.source)) if self.numbers is None else self.numbers
        return replace(self, numbers=numbers[chosen])

    def read(self, rows: Sequence[int] | NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Inputs `(n, *shape)` and targets `(n,)` of some rows; n may be 0.

        Raises:
            UserError: If a row cannot be read, or is not what is declared; it is named.
        """
        inputs = np.empty((len(rows), *self.shape), self.dtype)
        targets = np.empty(len(rows), np.int64)
        for place, row in enumerate(rows):
            number = int(row) if self.numbers is None else int(self.numbers[row])
            inputs[place], targets[place] = self._row(number)
        return inputs, targets

    def _row(self, number: int) -> tuple[NDArray[Any], int]:
        where = f"row {number} (from 0) of {self.name}"
        try:
            found = self.source[number]
        except Exception as error:
            raise UserError(f"{where} cannot be read: {type(error).__name__}: {error}.") from error
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise UserError(f"{where} is {_kind(found)}, expected a pair of input and class.")
        return self._input(where, found[0]), self._target(where, found[1])

    def _input(self, where: str, value: Any) -> NDArray[Any]:
        try:
            found = np.asarray(value)
            converted = found.astype(self.dtype, casting="same_kind" if self.dtype == "int64" else "unsafe")
        except (TypeError, ValueError, RuntimeError) as error:
            expected = f"numbers of type {self.dtype}, as data.dtype says"
            raise UserError(
                f"The input in {where} is {_kind(value)}, expected {expected}: {error}."
            ) from error
        if converted.shape != self.shape:
            raise refuse(f"shape of the input in {where}", found.shape, f"{self.shape}, as data.shape says")
        if not np.isfinite(converted).all():
            raise UserError(f"The input in {where} is not finite: found NaN or infinity, expected numbers.")
        if self.vocabulary is not None and not ((converted >= 0) & (converted < self.vocabulary)).all():
            expected = f"token ids in 0 … {self.vocabulary - 1}, as data.tokens = {self.vocabulary}"
            raise UserError(f"The input in {where} has a foreign token id, expected {expected}.")
        return converted

    def _target(self, where: str, value: Any) -> int:
        expected = f"a class in 0 … {self.num_classes - 1}, as data.num_classes = {self.num_classes}"
        try:
            target = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"The class in {where} is {_kind(value)}, expected {expected}.") from error
        if not (target.is_integer() and 0 <= target < self.num_classes):
            raise refuse(f"class in {where}", value, expected)
        return int(target)


def _kind(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
