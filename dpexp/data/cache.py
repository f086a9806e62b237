"""The user's cache of fetched files."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from filelock import FileLock, Timeout

from dpexp._validate import UserError
from dpexp.data.digest import Corrupt, verified
from dpexp.data.source import Source, Unavailable

__all__ = ["Cache", "Kept"]

logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, kw_only=True)
class Cache(Source):
    """A folder whose files are whole or absent, filled by one process at a time.

    Attributes:
        folder: The folder; made when it is first locked.
    """

    folder: Path

    def __str__(self) -> str:
        return f"the cache {str(self.folder)!r}"

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yields the cached files; a corrupt one is reported and counts as missing.

        Raises:
            Unavailable: If files are missing.
        """
        missing = []
        for name, sha256 in wanted.items():
            path = self.folder / name
            try:
                content = verified(str(path), path.read_bytes(), sha256=sha256)
            except FileNotFoundError:
                missing.append(name)
            except (OSError, Corrupt) as error:
                logger.warning("%s; it will be fetched again", error)
                missing.append(name)
            else:
                yield name, content
        if missing:
            raise Unavailable(f"it does not hold {', '.join(missing)}")

    def store(self, name: str, content: bytes) -> None:
        """Puts a file under its name in one step: interrupted at any moment, it is whole or absent.

        Raises:
            UserError: If the folder cannot be written to.
        """
        try:
            _replace(self.folder / name, content)
        except OSError as error:
            raise self._unusable(error) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from filling the cache meanwhile; waits for one that does.

        A folder that cannot be written to cannot be locked either; its files can still be read, and `store`
        says what is wrong if there is something to store.
        """
        lock = FileLock(self.folder / ".lock")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._wait_for(lock)
        except OSError as error:
            logger.info("%s cannot be locked: %s", self, error)
        try:
            yield
        finally:
            lock.release()

    def _wait_for(self, lock: FileLock) -> None:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.info("waiting for another process that is filling %s", self)
            lock.acquire()

    def _unusable(self, error: OSError) -> UserError:
        return UserError(
            f"{self} cannot be written to: {error}.\n"
            "Make the folder writable, or place the files by hand and set data.root to their folder."
        )


@final
@dataclass(frozen=True, kw_only=True)
class Kept(Source):
    """Another source, each of whose files is stored in the cache before it is passed on."""

    source: Source
    cache: Cache

    def __str__(self) -> str:
        return str(self.source)

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yields what the source yields."""
        for name, content in self.source.deliver(wanted):
            self.cache.store(name, content)
            yield name, content


def _replace(path: Path, content: bytes) -> None:
    # The temporary file lies in the same folder, as `os.replace` is atomic only within a file system.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
