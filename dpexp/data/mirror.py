"""A web folder that holds the files compressed by gzip."""

import io
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from dpexp.data.digest import verified
from dpexp.data.source import Source, Unavailable

__all__ = ["Mirror"]

logger = logging.getLogger(__name__)

# Seconds to connect and between two packets: a machine without a network is told so within seconds.
_TIMEOUT_S = (3, 10)


@final
@dataclass(frozen=True, kw_only=True)
class Mirror(Source):
    """One of the `data.mirrors`.

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


def _downloaded(url: str) -> bytes:
    # Both are imported here, as they take longer to import than a cached data set takes to read.
    import pooch
    import requests

    logger.info("fetching %s", url)
    content = io.BytesIO()
    download = pooch.HTTPDownloader(progressbar=True, timeout=_TIMEOUT_S)
    try:
        download(url, content, None)
    except requests.RequestException as error:
        raise Unavailable(f"{type(error).__name__}: {error}") from error
    return content.getvalue()
