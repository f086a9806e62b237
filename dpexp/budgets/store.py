"""`BudgetStore`: the budgets of data sets, spent by many runs and processes, never beyond their total."""

import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, final

from sqlalchemy import Connection, func, insert, inspect, select, update

from dpexp.budgets.database import BudgetStoreError, Database
from dpexp.budgets.record import (
    BudgetRecord,
    Reservation,
    RunRecord,
    first_head,
    moments_read,
    moments_written,
)
from dpexp.budgets.schema import BUDGETS, DIGESTS, METADATA, RESERVATIONS, RUNS, STORE, VERSION
from dpexp.budgets.spending import Moments, Spending
from dpexp.budgets.totals import Priced, Totals
from dpexp.ledger import BudgetSpentError

__all__ = ["BudgetRefusedError", "BudgetStore"]

_ROWS = RESERVATIONS.c


class BudgetRefusedError(BudgetSpentError):
    """What was asked for would pass the total of a data set. Nothing was reserved."""


@final
@dataclass(frozen=True, kw_only=True)
class BudgetStore:
    """All budgets in one database. Every method is one transaction, on disk when it returns."""

    database: Database

    def open(self, budget_id: str, terms: Callable[[BudgetRecord | None], Totals]) -> BudgetRecord:
        """The budget, which is opened if it is not there yet, and checked against its entries.

        Args:
            budget_id: Its id.
            terms: Given what is on record (None: nothing), returns the terms to open it under, or raises.

        Raises:
            BudgetStoreError: The store cannot be used, or the record is damaged.
        """
        with self.database.writing() as connection:
            self._make_tables(connection)
            found = _locked(connection, budget_id)
            totals = terms(found)
            if found is None:
                connection.execute(insert(BUDGETS), _opened(budget_id, totals))
                found = _locked(connection, budget_id)
                assert found is not None
            found.verify(_entries(connection, budget_id))
            return found

    def add_run(self, budget_id: str, *, label: str) -> str:
        """Enters a run, which has not reserved anything yet; returns its secret-free random name."""
        run = secrets.token_hex(8)
        row = {
            "run": run,
            "budget": budget_id,
            "label": label,
            "started": _now(),
            "host": socket.gethostname(),
        }
        with self.database.writing() as connection:
            connection.execute(insert(RUNS), row)
        return run

    def name_run(self, run: str, mlflow_run: str) -> None:
        """Enters the MLflow run that belongs to a run."""
        with self.database.writing() as connection:
            connection.execute(update(RUNS).where(RUNS.c.run == run).values(mlflow_run=mlflow_run))

    def reserve(self, budget_id: str, run: str, name: str, priced: Sequence[Priced]) -> BudgetRecord:
        """Reserves lots, all or none.

        Raises:
            BudgetRefusedError: The total would be passed.
            BudgetStoreError: The store cannot be used.
        """
        with self.database.writing() as connection:
            found = _there(connection, budget_id)
            if not found.totals.admits(found.totals.spent_after(found.spent, priced)):
                fit = found.totals.lots_within(found.spent, priced)
                raise BudgetRefusedError(
                    f"The budget {budget_id!r} ({found.totals.in_words}) does not hold {name}: {fit:,} of "
                    f"its {sum(part.lots for part in priced):,} lots would fit. Nothing was reserved."
                )
            return _enter(connection, found, run, name, [(p.event, p.lots, p.moments) for p in priced])

    def give_back(self, budget_id: str, run: str, name: str, lots: Mapping[str, int]) -> BudgetRecord:
        """Gives back lots that were reserved and provably not drawn, at the price they were reserved at.

        Args:
            budget_id: The budget.
            run: Who reserved them.
            name: What they are called in the record.
            lots: How many of each event, by its `repr`.

        Raises:
            ValueError: The run has not reserved so many.
        """
        with self.database.writing() as connection:
            found = _there(connection, budget_id)
            rows: list[tuple[Any, int, Moments]] = []
            for event, count in lots.items():
                prices = _held(connection, budget_id, run, event)
                rows += [(event, -part, moments) for moments, part in _taken(name, count, prices)]
            return _enter(connection, found, run, name, rows)

    def record_digest(self, budget_id: str, run: str, digest: str) -> None:
        """Enters a data set under the budget; a known one is left as it is.

        Raises:
            BudgetRefusedError: The same rows are known under another budget.
        """
        with self.database.writing() as connection:
            _there(connection, budget_id)
            known = connection.scalar(select(DIGESTS.c.budget).where(DIGESTS.c.digest == digest))
            if known is None:
                row = {"digest": digest, "budget": budget_id, "run": run, "at": _now()}
                connection.execute(insert(DIGESTS), row)
            elif known != budget_id:
                raise BudgetRefusedError(
                    f"data.budget_id = {budget_id!r}: expected {known!r}, under which the same training rows "
                    "are already charged. A second budget for them would double what may be spent. "
                    "Nothing was released."
                )

    def read(self, budget_id: str) -> tuple[BudgetRecord | None, list[RunRecord], list[Reservation]]:
        """The budget, its runs and all their entries, verified; changes nothing.

        Raises:
            BudgetStoreError: The store cannot be read, or the record is damaged.
        """
        if not self.database.exists:
            return None, [], []
        with self.database.reading() as connection:
            if not inspect(connection).has_table(BUDGETS.name):
                return None, [], []
            row = connection.execute(select(BUDGETS).where(BUDGETS.c.id == budget_id)).mappings().first()
            if row is None:
                return None, [], []
            found, entries = BudgetRecord.of(dict(row)), _entries(connection, budget_id)
            found.verify(entries)
            runs = connection.execute(select(RUNS).where(RUNS.c.budget == budget_id).order_by(RUNS.c.started))
            return found, [_run(dict(run)) for run in runs.mappings()], [entry for entry, _ in entries]

    def ids(self) -> list[str]:
        """The budgets that there are."""
        if not self.database.exists:
            return []
        with self.database.reading() as connection:
            if not inspect(connection).has_table(BUDGETS.name):
                return []
            return list(connection.scalars(select(BUDGETS.c.id).order_by(BUDGETS.c.id)))

    def digest_key(self) -> bytes:
        """The secret under which digests of data sets are computed, one for all who share the store."""
        with self.database.reading() as connection:
            return bytes.fromhex(connection.scalars(select(STORE.c.digest_key)).one())

    def _make_tables(self, connection: Connection) -> None:
        self.database.hold_all(connection)
        METADATA.create_all(connection)
        version = connection.scalar(select(STORE.c.version))
        if version is None:
            row = {"version": VERSION, "digest_key": secrets.token_bytes(32).hex()}
            connection.execute(insert(STORE), row)
        elif version != VERSION:
            raise BudgetStoreError(
                f"The budget store has version {version}, expected {VERSION}: another dpexp made it."
            )


def _locked(connection: Connection, budget_id: str) -> BudgetRecord | None:
    """The budget, which no other transaction can change until this one ends."""
    query = select(BUDGETS).where(BUDGETS.c.id == budget_id).with_for_update()
    row = connection.execute(query).mappings().first()
    return None if row is None else BudgetRecord.of(dict(row))


def _there(connection: Connection, budget_id: str) -> BudgetRecord:
    found = _locked(connection, budget_id)
    if found is None:
        raise BudgetStoreError(f"The budget {budget_id!r} has vanished from the store. Nothing may be drawn.")
    last = connection.execute(
        select(_ROWS.entry, _ROWS.hash).where(_ROWS.budget == budget_id).order_by(_ROWS.entry.desc()).limit(1)
    ).first()
    expected = (0, first_head(budget_id, found.totals)) if last is None else tuple(last)
    if expected != (found.entries, found.head):
        raise BudgetStoreError(
            f"The record of the budget {budget_id!r} is damaged: its last entry is another."
        )
    return found


def _enter(
    connection: Connection,
    found: BudgetRecord,
    run: str,
    name: str,
    rows: Sequence[tuple[Any, int, Moments]],
) -> BudgetRecord:
    """Writes entries, and moves total and head with them."""
    entry, head, spent = found.entries, found.head, found.spent
    for event, lots, moments in rows:
        entry += 1
        what = event if isinstance(event, str) else repr(event)
        reservation = Reservation(
            entry=entry, run=run, name=name, event=what, lots=lots, moments=moments, at=_now()
        )
        head, spent = reservation.hash_after(head), spent.plus(moments, lots)
        connection.execute(insert(RESERVATIONS), _row(found.id, reservation, head))
    changed = {"spent": spent.written, "entries": entry, "head": head}
    connection.execute(update(BUDGETS).where(BUDGETS.c.id == found.id).values(changed))
    return BudgetRecord(
        id=found.id, totals=found.totals, spent=spent, entries=entry, head=head, opened=found.opened
    )


def _row(budget_id: str, reservation: Reservation, digest: str) -> dict[str, Any]:
    plain = {**vars(reservation), "moments": moments_written(reservation.moments)}
    return {"budget": budget_id, "hash": digest, **plain}


def _entries(connection: Connection, budget_id: str) -> list[tuple[Reservation, str]]:
    query = select(RESERVATIONS).where(_ROWS.budget == budget_id).order_by(_ROWS.entry)
    return [_entry(dict(row)) for row in connection.execute(query).mappings()]


def _entry(row: dict[str, Any]) -> tuple[Reservation, str]:
    digest = row.pop("hash")
    row.pop("budget")
    try:
        return Reservation(**{**row, "moments": moments_read(row["moments"])}), digest
    except ValueError as error:
        raise BudgetStoreError(f"Entry {row['entry']} of a budget is damaged: {error}.") from error


def _run(row: dict[str, Any]) -> RunRecord:
    row.pop("budget")
    return RunRecord(**row)


def _held(connection: Connection, budget_id: str, run: str, event: str) -> list[tuple[Moments, int]]:
    """What a run has reserved of an event and not given back, by price, the latest first."""
    query = (
        select(_ROWS.moments, func.sum(_ROWS.lots))
        .where(_ROWS.budget == budget_id, _ROWS.run == run, _ROWS.event == event)
        .group_by(_ROWS.moments)
        .order_by(func.max(_ROWS.entry).desc())
    )
    return [(moments_read(moments), int(lots)) for moments, lots in connection.execute(query)]


def _taken(name: str, count: int, prices: Sequence[tuple[Moments, int]]) -> list[tuple[Moments, int]]:
    """`count` lots of those held, with their prices."""
    if count < 1 or count > sum(lots for _, lots in prices):
        held = sum(lots for _, lots in prices)
        raise ValueError(f"{name}: {count} lots cannot be given back; {held} of this event are reserved.")
    taken = []
    for moments, lots in prices:
        part = min(lots, count)
        if part > 0:
            taken.append((moments, part))
        count -= part
    return taken


def _opened(budget_id: str, totals: Totals) -> dict[str, Any]:
    return {
        "id": budget_id,
        "epsilon": None if totals.epsilon is None else totals.epsilon.hex(),
        "delta": totals.delta.hex(),
        "relation": str(totals.relation),
        "orders": " ".join(map(str, totals.orders)),
        "opened": _now(),
        "spent": Spending.nothing(len(totals.orders)).written,
        "entries": 0,
        "head": first_head(budget_id, totals),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
