"""The checkpoints of one run, on disk."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import Tensor

from dpexp.checkpoint.snapshot import Checkpoint, CheckpointError, packed, unpacked
from dpexp.durable import make_private_folder, write_whole
from dpexp.ledger import EntryKind, Head, Journal

__all__ = ["CheckpointFolder"]

_log = logging.getLogger(__name__)
_FEATURES = "features.ckpt"
_HINT = "Make room, or make the folder writable, and go on with resume=last."


@final
@dataclass(frozen=True)
class CheckpointFolder:
    """The checkpoints of one run. Each is known to the ledger by its digest, or it is not there.

    Attributes:
        path: The folder.
        keep: How many of the newest stay.
    """

    path: Path
    keep: int

    def write(self, checkpoint: Checkpoint, journal: Journal) -> Head:
        """Writes a checkpoint, tells the ledger, and removes those that are too old.

        Raises:
            CheckpointError: It could not be written. Those before are still there.
            LedgerError: The ledger could not be written.
        """
        name, content = f"step-{checkpoint.steps:09d}.ckpt", checkpoint.packed()
        self._write(name, content)
        digest = hashlib.sha256(content).digest()
        entry = journal.append(EntryKind.CHECKPOINT, first=checkpoint.steps, text=name, digest=digest)
        for old in self._files(journal)[: -self.keep]:
            old.unlink(missing_ok=True)
        return entry.head

    def newest(self, journal: Journal, *, terms: str) -> Checkpoint | None:
        """The newest checkpoint that is as it was written; None where the ledger knows of none.

        A checkpoint that is damaged is passed over for the one before it: what was drawn in between stays
        charged.

        Raises:
            CheckpointError: The ledger knows of checkpoints, and none is as it was written.
        """
        known = {entry.text: entry for entry in journal.entries if entry.kind is EntryKind.CHECKPOINT}
        if not known:
            return None
        for path in reversed(self._files(journal)):
            entry = known.get(path.name)
            content = path.read_bytes()
            if entry is None or hashlib.sha256(content).digest() != entry.digest:
                _log.warning("%s is not as the ledger knows it, and is passed over.", path)
                continue
            return _checked(Checkpoint.unpacked(content), journal, path, terms)
        raise CheckpointError(
            f"{self.path}: the ledger knows of {len(known)} checkpoints, and none of them is here as it was "
            "written.\nPut one back, or start a new run: what was spent stays spent."
        )

    def write_features(self, arrays: Mapping[str, Tensor], journal: Journal) -> None:
        """Keeps fitted features, so that what was released for them is not released again."""
        content = packed(arrays)
        self._write(_FEATURES, content)
        digest = hashlib.sha256(content).digest()
        journal.append(EntryKind.CHECKPOINT, text=_FEATURES, digest=digest)

    def features(self, journal: Journal) -> Mapping[str, Tensor] | None:
        """The fitted features; None where they were not kept.

        Raises:
            CheckpointError: They were kept and are damaged or gone.
        """
        known = [entry for entry in journal.entries if entry.text == _FEATURES]
        if not known:
            return None
        path = self.path / _FEATURES
        content = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(content).digest() != known[-1].digest:
            raise CheckpointError(
                f"{path}: the fitted features are not as they were written, and the model was trained on "
                "them.\nPut the file back, or start a new run: what was spent stays spent."
            )
        return unpacked(content)

    def _write(self, name: str, content: bytes) -> None:
        try:
            make_private_folder(self.path)
            write_whole(self.path / name, content)
        except OSError as error:
            raise CheckpointError(
                f"{self.path / name}: the checkpoint cannot be written: {error.strerror or error}.\n{_HINT}"
            ) from error

    def _files(self, journal: Journal) -> list[Path]:
        """The checkpoints in the order in which the ledger came to know them, strangers first."""
        known = {entry.text: entry.sequence for entry in journal.entries}
        files = self.path.glob("step-*.ckpt") if self.path.is_dir() else ()
        return sorted(files, key=lambda path: (known.get(path.name, -1), path.name))


def _checked(checkpoint: Checkpoint, journal: Journal, path: Path, terms: str) -> Checkpoint:
    if checkpoint.terms != terms or checkpoint.run_id != journal.entries[0].text:
        raise CheckpointError(f"{path}: this checkpoint belongs to another run or plan.")
    head = Head.parse(checkpoint.head)
    if head.sequence >= len(journal.entries) or journal.entries[head.sequence].head != head:
        raise CheckpointError(f"{path}: this checkpoint knows another ledger than {journal.path}.")
    return checkpoint
