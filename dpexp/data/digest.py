"""Proof that bytes are those of a published file."""

import gzip
import hashlib
import io
import zlib

from dpexp.data.source import Unavailable

__all__ = ["LARGEST", "Corrupt", "verified"]

LARGEST = 2**30
"""Bytes: no file of a known data set is larger, so that a file that uncompresses to more is an attack."""

_GZIP_MAGIC = b"\x1f\x8b"


class Corrupt(Unavailable):
    """The bytes that were found are not those of the wanted file."""


def verified(name: str, content: bytes, *, sha256: str) -> bytes:
    """Returns the uncompressed bytes of the file, which have the wanted digest.

    Bytes in, bytes out: what was verified is what gets parsed, whatever happens to the file meanwhile.

    Args:
        name: What the bytes are called in messages.
        content: The file's bytes, plain or compressed by gzip (an IDX file never starts like gzip).
        sha256: Digest of the uncompressed file, in lower-case hexadecimal.

    Raises:
        Corrupt: If the bytes cannot be uncompressed or have another digest.
    """
    plain = _gunzipped(name, content) if content.startswith(_GZIP_MAGIC) else content
    found = hashlib.sha256(plain).hexdigest()
    if found != sha256:
        raise Corrupt(f"{name} has the SHA-256 digest {found}, expected {sha256}")
    return plain


def _gunzipped(name: str, content: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            plain = file.read(LARGEST + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Corrupt(f"{name} is damaged: expected a whole gzip file ({error})") from error
    if len(plain) > LARGEST:
        raise Corrupt(f"{name} uncompresses to more than {LARGEST} bytes")
    return plain
