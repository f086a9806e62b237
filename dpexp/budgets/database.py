"""The database behind a budget store: transactions that exclude each other and are durable."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from dpexp import _validate
from dpexp.budgets.filesystem import refuse_network_file_systems

__all__ = ["BudgetStoreError", "Database"]

_ONE_STORE = 0x6470657870  # the key of PostgreSQL's advisory lock while tables are made


class BudgetStoreError(_validate.UserError):
    """The store cannot be read or written. Nothing was reserved by this call, and nothing may be drawn."""


@final
@dataclass(frozen=True, kw_only=True)
class Database:
    """One local SQLite file, or one PostgreSQL server.

    Every transaction opens a connection of its own, so that threads and forked processes are safe.

    Attributes:
        store: A path, or an SQLAlchemy URL without password (`postgresql+psycopg://user@host/database`).
        wait_s: How long to wait for other processes, in seconds > 0.
    """

    store: str
    wait_s: float

    @cached_property
    def url(self) -> URL:
        """The URL that SQLAlchemy opens.

        Raises:
            UserError: It is none, holds a password, or names another kind of database.
        """
        if "://" not in self.store:
            return URL.create("sqlite", database=str(Path(self.store).absolute()))
        try:
            url = make_url(self.store)
        except ArgumentError as error:
            raise _validate.refuse("budget.store", self.store, _EXPECTED) from error
        if url.password is not None or url.query:
            hidden = url.render_as_string(hide_password=True).partition("?")[0]
            hint = "The configuration is logged. Put it into ~/.pgpass, or into PGPASSWORD and PGSSLMODE."
            raise _validate.refuse("budget.store", hidden, "a URL without password and query", hint)
        backend = url.get_backend_name()
        if backend not in ("sqlite", "postgresql") or (backend == "sqlite" and not url.database):
            raise _validate.refuse("budget.store", self.store, _EXPECTED)
        return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url

    @property
    def path(self) -> Path | None:
        """The SQLite file; None for a server."""
        return Path(self.url.database or "").absolute() if self.url.get_backend_name() == "sqlite" else None

    @property
    def exists(self) -> bool:
        """Whether there is a file to read; a server is taken to be there."""
        return self.path is None or self.path.exists()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that waits for all others to end, and is on disk when the block is left.

        Raises:
            BudgetStoreError: The store cannot be had in time, is read-only, or damaged; nothing is changed.
        """
        if self.path is not None:
            refuse_network_file_systems(self.path)
            _make_private(self.path)
        with self._translated(), self._writer.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the store and changes nothing."""
        with self._translated(), self._reader.begin() as connection:
            yield connection

    def hold_all(self, connection: Connection) -> None:
        """Until the transaction ends nobody else makes tables; SQLite's own lock is enough."""
        if self.path is None:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ONE_STORE})

    @cached_property
    def _writer(self) -> Engine:
        if self.path is None:
            return self._server(self._begin_durable)
        return self._file(self.url, "BEGIN IMMEDIATE")

    @cached_property
    def _reader(self) -> Engine:
        if self.path is None:
            return self._server(_begin_snapshot)
        # Not made if missing; if writable, what a crashed process left half-written is rolled back.
        mode = "rw" if os.access(self.path, os.W_OK) else "ro"
        url = URL.create("sqlite", database=self.path.as_uri(), query={"mode": mode, "uri": "true"})
        return self._file(url, "BEGIN")

    def _file(self, url: URL, begin: str) -> Engine:
        engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": self.wait_s})
        event.listen(engine, "connect", _prepare_file)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    def _server(self, begin: Any) -> Engine:
        seconds = max(round(self.wait_s), 2)
        try:
            engine = create_engine(self.url, poolclass=NullPool, connect_args={"connect_timeout": seconds})
        except (ModuleNotFoundError, NoSuchModuleError) as error:
            hint = 'pip install "dpexp[postgresql]" installs psycopg.'
            raise _validate.refuse("budget.store", self.store, "a driver that is installed", hint) from error
        event.listen(engine, "begin", begin)
        return engine

    def _begin_durable(self, connection: Connection) -> None:
        if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
            expected = "a server with fsync = on: a power cut would forget what was spent"
            raise _validate.refuse("budget.store", self.store, expected)
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(round(self.wait_s * 1000), 1)}")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise BudgetStoreError(self._explained(str(error).splitlines()[0])) from error

    def _explained(self, found: str) -> str:
        place = f"The budget store {self.url.render_as_string(hide_password=True)}"
        after = "Nothing was reserved by this call, and nothing is drawn."
        if "locked" in found or "lock timeout" in found or "LockNotAvailable" in found:
            limit = f"budget.wait_s = {self.wait_s:g} s"
            return f"{place} is locked by another process for more than {limit}. {after}"
        if "readonly" in found or "read-only" in found:
            return f"{place} cannot be written. {after}\nMake it writable, or set another budget.store."
        if "malformed" in found or "not a database" in found:
            hint = "Restore it from a copy that is newer than the last run."
            return f"{place} is damaged ({found}). {after}\n{hint}"
        return f"{place} cannot be used: {found}. {after}"


_EXPECTED = "a path, sqlite:///path, or postgresql+psycopg://user@host/database"


def _prepare_file(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where the code says so
    # With a rollback journal only EXTRA makes a commit survive a power cut: its removal is synced too.
    for pragma in ("synchronous = EXTRA", "fullfsync = ON", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_snapshot(connection: Connection) -> None:
    connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def _make_private(path: Path) -> None:
    """Makes an empty file that its owner alone may read, if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
