"""What a budget store holds on one data set, as it is read back."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, final

from dpexp.accounting import Relation
from dpexp.budgets.database import BudgetStoreError
from dpexp.budgets.spending import Moments, Spending
from dpexp.budgets.totals import Totals

__all__ = ["BudgetRecord", "Reservation", "RunRecord", "first_head", "moments_read", "moments_written"]


@final
@dataclass(frozen=True, kw_only=True)
class Reservation:
    """One entry: `lots` lots of one event for one run; given back where negative."""

    entry: int
    run: str
    name: str
    event: str
    lots: int
    moments: Moments
    at: str

    def hash_after(self, head: str) -> str:
        """The hash of this entry on top of the one before."""
        fields = [
            self.entry,
            self.run,
            self.name,
            self.event,
            self.lots,
            moments_written(self.moments),
            self.at,
        ]
        return _hash([head, *fields])


@final
@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run that has opened the budget; `label` is its name for people."""

    run: str
    label: str
    mlflow_run: str | None
    started: str
    host: str


@final
@dataclass(frozen=True, kw_only=True)
class BudgetRecord:
    """A budget at one moment.

    Attributes:
        id: `data.budget_id`.
        totals: The terms it was opened under.
        spent: What all runs have reserved and not given back.
        entries: Number of reservations.
        head: Hash of the last one.
        opened: When it was opened, by the clock of the machine.
    """

    id: str
    totals: Totals
    spent: Spending
    entries: int
    head: str
    opened: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From a row of the table.

        Raises:
            BudgetStoreError: The row cannot be read.
        """
        try:
            totals = Totals(
                epsilon=None if row["epsilon"] is None else float.fromhex(row["epsilon"]),
                delta=float.fromhex(row["delta"]),
                relation=Relation(row["relation"]),
                orders=tuple(int(order) for order in row["orders"].split()),
            )
            spent = Spending.read(row["spent"])
        except (ValueError, ZeroDivisionError) as error:
            raise BudgetStoreError(f"The record of the budget {row['id']!r} is damaged: {error}.") from error
        return cls(
            id=row["id"],
            totals=totals,
            spent=spent,
            entries=row["entries"],
            head=row["head"],
            opened=row["opened"],
        )

    def verify(self, reservations: Iterable[tuple[Reservation, str]]) -> None:
        """Holds the total and the head to the entries.

        Args:
            reservations: All entries in order, each with its stored hash.

        Raises:
            BudgetStoreError: An entry is missing or was changed, or the total is not their sum.
        """
        head, count, spent = first_head(self.id, self.totals), 0, Spending.nothing(len(self.totals.orders))
        for reservation, stored in reservations:
            count, head = count + 1, reservation.hash_after(head)
            if reservation.entry != count or head != stored:
                raise self._damaged(f"entry {count} is missing or was changed")
            spent = spent.plus(reservation.moments, reservation.lots)
        if (count, head) != (self.entries, self.head):
            raise self._damaged(f"{self.entries} entries were made, and {count} are there")
        if spent != self.spent:
            raise self._damaged("the total is not the sum of the entries")

    def _damaged(self, why: str) -> BudgetStoreError:
        return BudgetStoreError(
            f"The record of the budget {self.id!r} is damaged: {why}. Nothing is spent from it any more.\n"
            "Restore the store from a copy that is newer than the last run."
        )


def first_head(budget_id: str, totals: Totals) -> str:
    """The hash that the first entry stands on: that of the terms."""
    epsilon = None if totals.epsilon is None else totals.epsilon.hex()
    return _hash([budget_id, epsilon, totals.delta.hex(), str(totals.relation), list(totals.orders)])


def moments_written(moments: Moments) -> str:
    """As text, without loss."""
    return " ".join(alpha.hex() for alpha in moments)


def moments_read(text: str) -> Moments:
    """From `moments_written`."""
    return tuple(float.fromhex(word) for word in text.split())


def _hash(fields: list[Any]) -> str:
    return hashlib.sha256(json.dumps(fields, ensure_ascii=False).encode()).hexdigest()
