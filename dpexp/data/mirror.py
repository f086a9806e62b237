"""Web folders and web archives that hold the files."""

import io
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from dpexp.data.archive import unpacked
from dpexp.data.digest import LARGEST, verified
from dpexp.data.source import Source, Unavailable

__all__ = ["ArchiveMirror", "Mirror"]

logger = logging.getLogger(__name__)

# Seconds to connect and between two packets: a machine without a network is told so within seconds.
_TIMEOUT_S = (3, 10)


@final
@dataclass(frozen=True, kw_only=True)
class Mirror(Source):
    """One of the `data.mirrors`, a folder of files compressed by gzip.

    Attributes:
        url: The web folder; the file `name` lies at `url/name.gz`.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Downloads file after file; the first failure ends it, so a dead mirror costs one timeout.

        Raises:
            Unavailable: If a download fails.
            Corrupt: If what was downloaded is not the wanted file.
        """
        for name, sha256 in wanted.items():
            url = f"{self.url.rstrip('/')}/{name}.gz"
            yield name, verified(url, _downloaded(url), sha256=sha256)


@final
@dataclass(frozen=True, kw_only=True)
class ArchiveMirror(Source):
    """One of the `data.mirrors`, a single archive with all files.

    Attributes:
        url: The tar or zip file.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Downloads the archive and yields the wanted files in it.

        Raises:
            Unavailable: If the download fails, or the archive is damaged or lacks a file.
            Corrupt: If a file of that name in the archive is not the wanted one.
        """
        yield from unpacked(self.url, io.BytesIO(_downloaded(self.url)), wanted)


class _Bounded(io.BytesIO):
    """Refuses to grow beyond any data set's size, whatever a server sends."""

    def write(self, content: bytes, /) -> int:  # type: ignore[override]
        if self.tell() + len(content) > LARGEST:
            raise Unavailable(f"it sends more than {LARGEST} bytes")
        return super().write(content)


def _downloaded(url: str) -> bytes:
    # Both are imported here, as they take longer to import than a cached data set takes to read.
    import pooch
    import requests

    logger.info("fetching %s", url)
    content = _Bounded()
    download = pooch.HTTPDownloader(progressbar=True, timeout=_TIMEOUT_S)
    try:
        download(url, content, None)
    except requests.RequestException as error:
        raise Unavailable(f"{type(error).__name__}: {error}") from error
    return content.getvalue()
