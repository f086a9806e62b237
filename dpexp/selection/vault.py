"""The private store: one folder a selection, outside the outputs, readable by its owner only."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

from filelock import FileLock, Timeout

from dpexp import _validate
from dpexp.durable import make_private_folder, write_whole
from dpexp.selection.record import Record

__all__ = ["Vault", "private_root"]

_RECORD = "record.json"
_PATIENCE_SECONDS = 2.0


def private_root(outputs: Path) -> Path:
    """`DPEXP_PRIVATE_DIR`, or `dpexp` in the user's state folder; made where it is missing.

    Args:
        outputs: What is handed on, and may not hold it.

    Raises:
        UserError: It lies in the outputs, or others may read it.
    """
    named, state = os.environ.get("DPEXP_PRIVATE_DIR"), os.environ.get("XDG_STATE_HOME")
    base = Path(named).expanduser() if named else Path(state or "~/.local/state").expanduser() / "dpexp"
    root = base.absolute() / "selections"
    if root.resolve().is_relative_to(outputs.resolve()):
        hint = "Who is handed the outputs would see the number of trials. export DPEXP_PRIVATE_DIR=…"
        raise _validate.refuse("DPEXP_PRIVATE_DIR", str(base), f"a folder outside {outputs}", hint)
    make_private_folder(root)
    found = root.stat()
    if os.name != "nt" and (found.st_mode & 0o077 or found.st_uid != os.geteuid()):
        expected = "a folder that is yours, and that nobody else may read"
        raise _validate.refuse(
            "private store", str(root), expected, f"chmod 700 {root}, or export DPEXP_PRIVATE_DIR=…"
        )
    return root


_NEVER_AGAIN = (
    "That selection on the same terms was interrupted. Its number of trials was drawn once and is not drawn "
    "again. Its folder may be deleted only for a reason that has nothing to do with the data; how long it "
    "took is none."
)


@final
class Vault:
    """The folder of one selection, with its record: locked by this process, and on disk at every change.

    Args:
        folder: The folder.
        record: What is written in it.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder, self.record = folder, record

    @classmethod
    @contextlib.contextmanager
    def new(cls, root: Path, record: Callable[[], Record], *, terms: str) -> Iterator["Vault"]:
        """A new selection; its record is on disk before the block begins.

        Args:
            root: The private store.
            record: Draws it.
            terms: Its terms.

        Raises:
            UserError: One of the same terms was not brought to its end.
        """
        with _locked(root / ".lock"):  # no two processes begin the same
            if unfinished := _unfinished(root, terms):
                raise _validate.refuse("resume", None, f"last, to end {unfinished} first", _NEVER_AGAIN)
            folder = make_private_folder(root / secrets.token_hex(8))
            vault = cls(folder, record())
            vault.write(vault.record)
        with _locked(folder / ".lock"):
            yield vault

    @classmethod
    @contextlib.contextmanager
    def last(cls, root: Path, *, terms: str) -> Iterator["Vault"]:
        """The unfinished selection of these terms; a trial that was interrupted has failed.

        Raises:
            UserError: There is none, or another process is at it.
        """
        folder = _unfinished(root, terms)
        if folder is None:
            expected = "last only where a selection with this search space and these plans is unfinished"
            raise _validate.refuse("resume", "last", expected, "There is none. Start one without resume.")
        with _locked(folder / ".lock"):
            vault = cls(folder, _read(folder))
            vault.write(vault.record.interrupted())
            yield vault

    def write(self, record: Record) -> None:
        """Makes it the record, durably.

        Raises:
            OSError: It cannot be written; the record is what it was.
        """
        write_whole(self.folder / _RECORD, record.text.encode())
        self.record = record

    def trial(self, number: int) -> Path:
        """The folder of a trial; its name, which an error may show, says nothing of the number."""
        return self.folder / "trials" / f"{self.record.trials[number].tie:032x}"


def _unfinished(root: Path, terms: str) -> Path | None:
    for path in sorted(root.glob(f"*/{_RECORD}")):
        record = _read(path.parent)
        if record.terms == terms and not record.released:
            return path.parent
    return None


def _read(folder: Path) -> Record:
    path = folder / _RECORD
    try:
        return Record.read(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise _validate.UserError(f"{path}: is not what was written: {error}") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        with FileLock(path, timeout=_PATIENCE_SECONDS, mode=0o600):
            yield
    except Timeout as error:
        raise _validate.UserError(f"{path.parent}: another process is at work on this selection.") from error
