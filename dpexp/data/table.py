"""Columns of a table as numbers, by public facts about each column that are written down beforehand.

Ranges and categories that are computed from private rows (a minimum, a mean, the words that occur) tell of
those rows. Here they are declared, and a row is encoded by itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import UserError, did_you_mean, number, refuse
from dpexp.data.dataset import FILL

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Category", "Column", "Number", "columns_of", "encoded"]


class Column(Protocol):
    """What is declared about one column."""

    @property
    def width(self) -> int:
        """Numbers per row that come out."""
        ...

    def encode(self, where: str, values: "pd.Series") -> NDArray[np.float32]:
        """Shape `(N, width)`; `where` names the column for messages."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class Number:
    """A number, taken as it is, or scaled from a range to [0, 1].

    Attributes:
        low: What becomes 0; values below it count as it. None takes numbers as they are.
        high: What becomes 1; values above it count as it.
        log: Whether log(1 + value - low) is scaled instead, for sums of money and other long tails.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise UserError("A column's low and high are declared together, or neither.")
        if self.low is not None and self.high is not None:
            number("low", self.low, below=number("high", self.high))

    @property
    def width(self) -> int:
        """1."""
        return 1

    def encode(self, where: str, values: "pd.Series") -> NDArray[np.float32]:
        """Shape `(N, 1)`."""
        found = as_numbers(where, values)
        if self.low is None or self.high is None:
            return found.astype(np.float32)[:, None]
        above, span = np.clip(found, self.low, self.high) - self.low, self.high - self.low
        scaled = np.log1p(above) / math.log1p(span) if self.log else above / span
        return scaled.astype(np.float32)[:, None]


@final
@dataclass(frozen=True, kw_only=True)
class Category:
    """A word, as an indicator of each word that is possible.

    Attributes:
        words: The words.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.words)) != len(self.words) or not self.words:
            raise UserError(f"A column's values must be different, and at least one; found {self.words}.")

    @property
    def width(self) -> int:
        """The number of words."""
        return len(self.words)

    def encode(self, where: str, values: "pd.Series") -> NDArray[np.float32]:
        """Shape `(N, len(words))`."""
        codes = self.codes(where, values)
        encoded = np.zeros((len(codes), len(self.words)), np.float32)
        encoded[np.arange(len(codes)), codes] = 1
        return encoded

    def codes(self, where: str, values: "pd.Series") -> NDArray[np.int64]:
        """The number of each row's word, shape `(N,)`."""
        import pandas as pd

        words = values.astype(str).str.strip()
        codes = np.asarray(pd.Index(self.words).get_indexer(words), np.int64)
        foreign = np.flatnonzero(codes < 0)
        if foreign.size:
            row = int(foreign[0])
            found = str(words.iloc[row])
            shown = ", ".join(self.words[:10]) + (", …" if len(self.words) > 10 else "")
            hint = did_you_mean(found, self.words)
            raise refuse(f"row {row} (from 0) of {where}", found, f"one of {shown}", hint)
        return codes


def columns_of(key: str, declared: Any) -> dict[str, Column]:
    """Columns as a configuration declares them, by name or shell-style pattern of names.

    Args:
        key: Where they are set.
        declared: Names, taken as numbers; or by name null (as it is), `[low, high]`, a mapping with `low`,
            `high` and `log`, or a mapping with `values`, a list of words.

    Raises:
        UserError: If it is none of these.
    """
    if isinstance(declared, Mapping):
        return {str(name): _column(f"{key}.{name}", facts) for name, facts in declared.items()}
    if isinstance(declared, Sequence) and not isinstance(declared, str) and declared:
        return {str(name): Number() for name in declared}
    raise refuse(key, declared, "a list of columns, or a mapping from columns to what is known of each")


def _column(key: str, facts: Any) -> Column:
    if facts is None:
        return Number()
    if isinstance(facts, Mapping) and set(facts) == {"values"}:
        return Category(words=tuple(str(word) for word in facts["values"]))
    if isinstance(facts, Mapping) and {"low", "high"} <= set(facts) <= {"low", "high", "log"}:
        return _number(key, **facts)
    if isinstance(facts, Sequence) and not isinstance(facts, str) and len(facts) == 2:
        return _number(key, low=facts[0], high=facts[1])
    raise refuse(key, facts, "null, [low, high], {low, high, log} or {values: [words]}")


def _number(key: str, **facts: Any) -> Number:
    try:
        return Number(**facts)
    except UserError as error:
        raise UserError(f"{key}: {error}") from error


def encoded(origin: str, table: "pd.DataFrame", columns: Mapping[str, Column]) -> NDArray[np.float32]:
    """All columns side by side, in their order, shape `(N, sum of widths)`.

    Raises:
        UserError: If a cell is not what is declared; it is named by file, column and row.
    """
    whole = np.empty((len(table), sum(column.width for column in columns.values())), np.float32)
    start = 0
    for name, column in columns.items():
        whole[:, start : start + column.width] = column.encode(f"{name!r} of {origin}", table[name])
        start += column.width
    return whole


def as_numbers(where: str, values: "pd.Series", *, hint: str = FILL) -> NDArray[np.float64]:
    """A column as finite numbers, shape `(N,)`; `hint` says what to do about a cell that is none.

    Raises:
        UserError: If a cell is no finite number; its row is named.
    """
    import pandas as pd

    numbers = np.asarray(
        pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan), np.float64
    )
    foreign = np.flatnonzero(~np.isfinite(numbers))
    if foreign.size:
        row = int(foreign[0])
        raise refuse(f"row {row} (from 0) of {where}", _plain(values.iloc[row]), "a finite number", hint)
    return numbers


def _plain(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell
