"""What a store did not take, kept on disk in order until it does; nothing is lost and nothing sent twice."""

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

from filelock import FileLock, Timeout

__all__ = ["Refused", "Spool", "spools"]

_log = logging.getLogger(__name__)

Entry = Mapping[str, Any]


class Refused(Exception):
    """The store was there, and will never take this entry."""


@final
class Spool:
    """The entries of one run that wait for its store: one JSON object a line, readable by its owner only.

    The first line names run and store. Lines are written whole and synced; how far they have been sent is
    kept beside them, so that one process may go on where another was killed. An entry that was sent just
    before a kill is sent again: MLflow drops a point that equals one it has.

    Args:
        folder: Where spools are.
        run_id: The run.
        store: The store that the entries are for, without password.
    """

    def __init__(self, folder: Path, run_id: str, store: str) -> None:
        self.run_id, self.store = run_id, store
        self.path = folder / f"{run_id}.jsonl"
        self._files = folder / f"{run_id}.files"
        self._sent = folder / f"{run_id}.sent"
        self._lock = FileLock(folder / f"{run_id}.lock", thread_local=False)
        self._appending = threading.Lock()

    @property
    def waiting(self) -> bool:
        """Whether there is anything to send."""
        return self.path.exists()

    def append(self, entry: Entry) -> None:
        """Adds an entry at the end; when this returns, a power cut does not lose it.

        Raises:
            OSError: The disk does not take it.
        """
        with self._appending:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._lock.is_locked:
                self._lock.acquire()  # as long as this run lives, no other process sends its entries
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _write(descriptor, self._start(descriptor) + _line(entry))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def keep(self, file: Path) -> Path:
        """A copy of a file, or of a folder, that lasts until it has been sent."""
        self._files.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = self._files / file.name
        if file.is_dir():
            return Path(shutil.copytree(file, kept, dirs_exist_ok=True))  # in a folder of its owner's
        shutil.copyfile(file, kept)
        kept.chmod(0o600)
        return kept

    def drain(self, send: Callable[[Entry], None]) -> int:
        """Sends what waits, in order; returns how many entries. What `send` refuses for ever is put aside.

        Raises:
            OSError: `send` raised it: the entry and those after it go on waiting.
        """
        count = 0
        while self.waiting:
            for end, line in self._unsent():
                count += self._send(send, line)
                self._remember(end)
            self._remove_if_sent()
        return count

    def try_lock(self) -> bool:
        """Whether these entries are now this process's to send."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Lets other processes send what is left."""
        self._lock.release(force=True)

    def _start(self, descriptor: int) -> bytes:
        """The header of a new file; a line break after a line that a crash has torn."""
        size = os.fstat(descriptor).st_size
        if size == 0:
            return _line({"kind": "run", "run_id": self.run_id, "store": self.store})
        return b"" if os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"

    def _unsent(self) -> Iterator[tuple[int, bytes]]:
        end = int(self._sent.read_text()) if self._sent.exists() else 0
        with self.path.open("rb") as file:
            file.seek(end)
            for line in file:
                end += len(line)
                yield end, line

    def _send(self, send: Callable[[Entry], None], line: bytes) -> int:
        try:
            entry = json.loads(line)
        except ValueError:
            if line.strip():
                self._put_aside(line, "a crash tore it")
            return 0
        if entry["kind"] == "run":
            return 0
        try:
            send(entry)
        except Refused as error:
            self._put_aside(line, str(error))
            return 0
        return 1

    def _put_aside(self, line: bytes, reason: str) -> None:
        aside = self.path.with_suffix(".refused")
        _log.error("An entry of run %s cannot be stored (%s); it is kept in %s.", self.run_id, reason, aside)
        descriptor = os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _write(descriptor, line.rstrip(b"\n") + b"\n")
        finally:
            os.close(descriptor)

    def _remember(self, end: int) -> None:
        temporary = self._sent.with_suffix(".sent.new")
        temporary.write_text(str(end))
        os.replace(temporary, self._sent)

    def _remove_if_sent(self) -> None:
        with self._appending:
            if int(self._sent.read_text()) < self.path.stat().st_size:
                return  # something was appended meanwhile
            # The position first: without it a crash sends again, with a stale one it would skip.
            self._sent.unlink()
            self.path.unlink()
            shutil.rmtree(self._files, ignore_errors=True)


def spools(folder: Path, store: str) -> Iterator[Spool]:
    """The spools of a store that no living run holds; each is locked while it is looked at."""
    for path in sorted(folder.glob("*.jsonl")):
        spool = Spool(folder, path.stem, store)
        if _store_of(path) == store and spool.try_lock():
            try:
                if spool.waiting:  # another process may just have sent it
                    yield spool
            finally:
                spool.release()


def _store_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline())
    except FileNotFoundError:
        return None  # sent meanwhile, by another process
    except ValueError:
        _log.error("%s begins with a torn line; it cannot be told which store it is for.", path)
        return None
    store: str = header["store"]
    return store


def _line(entry: Entry) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
