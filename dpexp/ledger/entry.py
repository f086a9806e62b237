"""One entry of a ledger file: fixed size, checksummed, chained to the one before."""

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Self, final

__all__ = ["ENTRY_BYTES", "NO_HASH", "Entry", "EntryKind", "Head"]

ENTRY_BYTES = 256  # divides every sector size, so that no entry lies across two sectors
NO_HASH = bytes(32)
_MAGIC = b"dpexpL\x01\n"  # the last but one byte is the version of the format
_FIELDS = struct.Struct("<8sQQQQQQ64s32s32s")
_TEXT_BYTES = 64


class EntryKind(IntEnum):
    """What an entry says. Numbers are never reused: old files stay readable."""

    OPENED = 1
    RELEASE = 2
    BLOCK = 3
    RETURNED = 4
    CHECKPOINT = 5
    RESUMED = 6
    TORN = 7
    FINISHED = 8


@final
@dataclass(frozen=True)
class Head:
    """Names one entry, and by its hash all entries before it."""

    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The head that `str` wrote.

        Raises:
            ValueError: It is none.
        """
        sequence, _, digest = text.partition(":")
        if len(bytes.fromhex(digest)) != len(NO_HASH):
            raise ValueError(f"{text!r} is no head of a ledger.")
        return cls(int(sequence), digest)


@final
@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry.

    Attributes:
        sequence: 0, 1, … in the file.
        kind: What it says.
        first: First optimizer step of a block, or the step of a checkpoint or resumption.
        count: Lots of a block; for `OPENED` and `RESUMED`, how many one-time releases are to come.
        most_next: The most lots that the entry after this one may reserve.
        process: The process that wrote it.
        text: Name of a release or of a checkpoint file, or the run's id; up to 64 bytes.
        digest: SHA-256 of a name, of the run's terms, or of a checkpoint file.
        previous: Hash of the entry before; zeros for the first.
    """

    sequence: int
    kind: EntryKind
    first: int = 0
    count: int = 0
    most_next: int = 0
    process: int = 0
    text: str = ""
    digest: bytes = NO_HASH
    previous: bytes = NO_HASH

    @property
    def hash(self) -> bytes:
        """SHA-256 of everything else in the entry."""
        return hashlib.sha256(self._content()).digest()

    @property
    def head(self) -> Head:
        """The name of the ledger up to here."""
        return Head(self.sequence, self.hash.hex())

    def encoded(self) -> bytes:
        """The entry as `ENTRY_BYTES` bytes."""
        return self._content() + self.hash

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The entry in `ENTRY_BYTES` bytes.

        Raises:
            ValueError: They are not an entry as it was written.
        """
        if len(data) != ENTRY_BYTES:
            raise ValueError(f"an entry has {ENTRY_BYTES} bytes, found {len(data)}")
        magic, *numbers, text, digest, previous = _FIELDS.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("this is no entry of a ledger of this version")
        sequence, kind, first, count, most_next, process = numbers
        found = cls(
            sequence=sequence,
            kind=EntryKind(kind),
            first=first,
            count=count,
            most_next=most_next,
            process=process,
            text=text.rstrip(b"\0").decode(),
            digest=digest,
            previous=previous,
        )
        if found.encoded() != data:
            raise ValueError("its checksum does not fit its content")
        return found

    def _content(self) -> bytes:
        text = self.text.encode()[:_TEXT_BYTES].decode(errors="ignore").encode()
        numbers = (self.sequence, self.kind, self.first, self.count, self.most_next, self.process)
        fields = _FIELDS.pack(_MAGIC, *numbers, text, self.digest, self.previous)
        return fields.ljust(ENTRY_BYTES - len(NO_HASH), b"\0")
