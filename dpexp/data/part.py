"""One file's examples, with the rows they came from and whom they are about."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import UserError, refuse
from dpexp.data.rule import Rule, selected
from dpexp.data.splits import Examples

__all__ = ["Part", "divided", "refuse_shared"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The examples of a file, or some of them.

    Attributes:
        examples: The examples.
        rows: Their rows in the file, shape `(N,)`.
        ids: Whom each is about, shape `(N,)`; None where nobody is named.
        origin: The file.
    """

    examples: Examples
    rows: NDArray[np.int64]
    ids: NDArray[np.str_] | None
    origin: str

    def chosen(self, mask: NDArray[np.bool_]) -> "Part":
        """The examples where a mask is true."""
        ids = None if self.ids is None else self.ids[mask]
        return replace(self, examples=self.examples.rows(mask), rows=self.rows[mask], ids=ids)


def divided(key: str, part: Part, rule: Rule) -> tuple[Part, Part]:
    """What a rule leaves, and what it cuts off.

    Raises:
        UserError: If one of them would have no row.
    """
    mask = selected(rule, len(part.rows))
    if mask.all() or not mask.any():
        expected = f"a rule that leaves and cuts off rows; {part.origin} has {len(part.rows)}"
        raise refuse(key, rule, expected)
    return part.chosen(~mask), part.chosen(mask)


def refuse_shared(one: Part, other: Part) -> None:
    """Refuses an id that is in two splits: what is learned from a person would be tested on that person.

    Raises:
        UserError: With the id, and its file and row on both sides.
    """
    if one.ids is None or other.ids is None:
        return
    shared, mine, theirs = np.intersect1d(one.ids, other.ids, return_indices=True)
    if shared.size:
        first = int(np.argmin(mine))
        mine_at, theirs_at = one.rows[mine[first]], other.rows[theirs[first]]
        raise UserError(
            f"The id {str(shared[first])!r} is in two splits: in row {mine_at} (from 0) of {one.origin} and "
            f"in row {theirs_at} of {other.origin}; so are {shared.size - 1} others.\n"
            "Let every id be in one split only, or set data.id to null if ids may be shared."
        )
