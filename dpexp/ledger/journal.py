"""The ledger's file: append-only, locked by one process, durable before a call returns."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, final

from filelock import FileLock, Timeout

from dpexp import _validate
from dpexp.durable import make_private_folder, sync_folder
from dpexp.ledger.entry import ENTRY_BYTES, NO_HASH, Entry, EntryKind, Head

__all__ = ["Journal", "LedgerError", "entries_of"]


class LedgerError(_validate.UserError):
    """A ledger cannot be written or trusted; nothing was drawn on its account."""


@final
class Journal:
    """The entries of one run, on disk.

    Use it as a context manager, or close it: the lock is held until then, or until the process dies.

    Attributes:
        path: The file.
        entries: All entries, the oldest first.
        torn: Bytes after the last whole entry, found at opening and not repaired yet.
    """

    def __init__(self, path: Path, lock: FileLock, descriptor: int) -> None:
        """Use `create` or `open`."""
        self.path, self._lock, self._descriptor = path, lock, descriptor
        self.entries: list[Entry] = []
        self.torn = 0
        self._broken = False

    @classmethod
    def create(cls, path: Path, *, run_id: str, terms: bytes, releases: int) -> Self:
        """A new ledger with its first entry.

        Args:
            path: The file; there must be none.
            run_id: The run it belongs to.
            terms: Hash of all that must not change during the run.
            releases: How many one-time releases come before the first lot.

        Raises:
            LedgerError: The file exists, or it cannot be written.
        """
        try:
            make_private_folder(path.parent)
            lock = _locked(path, [])
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        journal = cls(path, lock, descriptor)
        try:
            journal.append(EntryKind.OPENED, text=run_id, digest=terms, count=releases, most_next=1)
            sync_folder(path.parent)  # a file whose name is lost is a lost file
        except OSError as error:
            journal.close()
            raise _unusable(path, error) from error
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, path: Path, *, run_id: str, terms: bytes, known: Mapping[str, str]) -> Self:
        """The ledger of a run that goes on.

        Args:
            path: The file.
            run_id: The run.
            terms: Hash of all that must not have changed.
            known: Hash of an entry that others remember, in hexadecimal, by who remembers it.

        Raises:
            LedgerError: It is missing, in use, corrupt, of another run or plan, older than what is
                remembered of it, or it went another way.
        """
        if not path.exists():
            raise LedgerError(
                f"{path}: the ledger of run {run_id} is missing, and without it nobody knows what was spent."
                "\nPut it back from a backup that is not older than the run, or start a new run."
            )
        try:
            written = _entries_of(path)[0]
            lock = _locked(path, written)
            descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            raise _unusable(path, error) from error
        journal = cls(path, lock, descriptor)
        try:
            journal.entries, journal.torn = _entries_of(path)  # again: now nobody writes
            _check_first(path, journal.entries, run_id, terms)
            for source, entry in known.items():
                _check_known(path, journal.entries, source, entry)
        except BaseException:
            journal.close()
            raise
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends writing and gives the lock back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._lock.release()

    @property
    def head(self) -> Head:
        """The name of the ledger as it is now."""
        return self.entries[-1].head

    def append(self, kind: EntryKind, **fields: Any) -> Entry:
        """Adds an entry; it is on disk when this returns.

        Args:
            kind: What it says.
            fields: Those of `Entry` that it carries.

        Raises:
            LedgerError: It could not be made durable; no further entry is taken.
        """
        if self.torn and kind is not EntryKind.TORN:
            raise LedgerError(f"{self.path}: its torn end must be repaired before anything is added.")
        if self._broken:
            raise LedgerError(f"{self.path}: an entry before could not be written; resume the run to go on.")
        sequence, carried = len(self.entries), {"process": os.getpid()}
        if self.entries:
            carried["most_next"] = self.entries[-1].most_next
        previous = self.entries[-1].hash if self.entries else NO_HASH
        entry = Entry(sequence=sequence, kind=kind, previous=previous, **(carried | fields))
        self._broken = True  # until it is known to be whole
        try:
            self._write(sequence * ENTRY_BYTES, entry.encoded())
        except OSError as error:
            raise _unusable(self.path, error) from error
        self.entries.append(entry)
        self.torn, self._broken = 0, False
        return entry

    def _write(self, offset: int, data: bytes) -> None:
        os.lseek(self._descriptor, offset, os.SEEK_SET)  # a torn end is overwritten, never cut off
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        os.fsync(self._descriptor)


def entries_of(path: Path, *, run_id: str, terms: bytes) -> list[Entry]:
    """All whole entries of a run's ledger, which may be written to meanwhile.

    Raises:
        LedgerError: It is missing, corrupt, or of another run or plan.
    """
    try:
        entries, _ = _entries_of(path)
    except OSError as error:
        raise LedgerError(f"{path}: the ledger cannot be read: {error.strerror or error}.") from error
    _check_first(path, entries, run_id, terms)
    return entries


def _entries_of(path: Path) -> tuple[list[Entry], int]:
    """All whole entries in a chain, and how many bytes of a torn one follow them."""
    data = path.read_bytes()
    entries: list[Entry] = []
    for offset in range(0, len(data), ENTRY_BYTES):
        part = data[offset : offset + ENTRY_BYTES]
        try:
            entries.append(_next(entries, part))
        except ValueError as error:
            if entries and offset + ENTRY_BYTES >= len(data):
                return entries, len(part)
            raise LedgerError(
                f"{path}: entry {len(entries)} is corrupt: {error}. What was spent is not known any more."
                "\nPut the file back from a backup that is not older than the run, or start a new run."
            ) from error
    if not entries:
        raise LedgerError(f"{path}: the ledger is empty.\nStart a new run; nothing was drawn for this one.")
    return entries, 0


def _next(entries: list[Entry], data: bytes) -> Entry:
    entry = Entry.decoded(data)
    if entry.sequence != len(entries):
        raise ValueError(f"it says that it is entry {entry.sequence}")
    if entries and entry.previous != entries[-1].hash:
        raise ValueError("it does not follow from the entry before")
    return entry


def _check_first(path: Path, entries: list[Entry], run_id: str, terms: bytes) -> None:
    first = entries[0]
    if first.kind is not EntryKind.OPENED or first.text != run_id:
        raise LedgerError(f"{path}: this is the ledger of run {first.text!r}, expected {run_id!r}.")
    if first.digest != terms:
        raise LedgerError(f"{path}: the run was started under another plan than the one it is resumed with.")


def _check_known(path: Path, entries: list[Entry], source: str, known: str) -> None:
    if known not in {entry.hash.hex() for entry in entries}:
        raise LedgerError(
            f"{path}: the ledger is older than its run, or was forked: {source} knows an entry it has not."
            "\nPut the newest copy of the file back, or start a new run."
        )


def _locked(path: Path, written: list[Entry]) -> FileLock:
    lock = FileLock(path.with_suffix(".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        writers = [entry.process for entry in written if entry.process]
        named = f"process {writers[-1]}" if writers else "another process"
        raise LedgerError(
            f"{path}: the run is in use by {named}, and one process at a time may spend for it."
            "\nWait until it ends, or stop it, and resume then."
        ) from None
    return lock


def _unusable(path: Path, error: OSError) -> LedgerError:
    return LedgerError(
        f"{path}: the ledger cannot be written: {error.strerror or error}. Nothing was drawn on its account."
        "\nMake room, or make the folder writable, and go on with resume=last."
    )
