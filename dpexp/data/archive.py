"""Wanted files out of archives, in memory: no path in an archive is ever written to disk, nothing is run."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO

from dpexp.data.digest import LARGEST, verified
from dpexp.data.source import Unavailable

__all__ = ["members", "unpacked"]

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)


def unpacked(name: str, archive: IO[bytes], wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Yields name and verified bytes of the wanted files in an archive.

    Args:
        name: What the archive is called in messages.
        archive: A tar file, compressed or not, or a zip file (as wheels are).
        wanted: SHA-256 digest (of the uncompressed file) by file name.

    Raises:
        Unavailable: If the archive is damaged or lacks a file.
        Corrupt: If a file of that name in the archive is not the wanted one.
    """
    contents = members(archive, wanted)
    for file, content in contents.items():
        yield file, verified(f"{name}: {file}", content, sha256=wanted[file])
    missing = [file for file in wanted if file not in contents]
    if missing:
        raise Unavailable(f"it does not hold {', '.join(missing)}")


def members(archive: IO[bytes], wanted: Mapping[str, str]) -> dict[str, bytes]:
    """Reads the wanted regular files, plain or with `.gz`, whatever folder of the archive they lie in.

    Raises:
        Unavailable: If the archive is damaged, or a file in it is larger than any data set's.
    """
    contents = {}
    try:
        for path, file in _files(archive):
            name = PurePosixPath(path).name.removesuffix(".gz")
            if name in wanted:
                contents[name] = _bounded(path, file)
    except _DAMAGE as error:
        raise Unavailable(f"its archive is damaged: {error}") from error
    return contents


def _files(archive: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    is_zip = archive.read(4) == b"PK\x03\x04"
    archive.seek(0)
    if is_zip:
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                with zipped.open(entry) as file:
                    yield entry.filename, file
        return
    with tarfile.open(fileobj=archive) as tarred:
        for member in tarred:
            # `extractfile` would follow a link.
            content = tarred.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content


def _bounded(path: str, file: IO[bytes]) -> bytes:
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Unavailable(f"its {path} uncompresses to more than {LARGEST} bytes")
    return content
