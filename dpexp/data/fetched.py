"""Data sets that consist of published files, each known by its SHA-256."""

import abc
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dpexp._validate import refuse
from dpexp.data.cache import Cache
from dpexp.data.dataset import Dataset
from dpexp.data.folder import Folder, PlacedArchive
from dpexp.data.search import find
from dpexp.data.source import Source

__all__ = ["Fetched", "checked_urls"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Fetched(Dataset):
    """Files are looked for in `root`, in the user's cache and at the remote sources, in this order.

    A file is used only if it has the digest given here.

    Attributes:
        root: Folder in which the user placed the files (plain or with `.gz`, there or in the subfolder
            `name`), or one of the published archives; None or an empty text if there is none.
        sha256: Digest of each uncompressed file by file name.
    """

    root: str | None
    sha256: Mapping[str, str]

    names: ClassVar[tuple[str, ...]]
    """The files."""
    archives: ClassVar[tuple[str, ...]] = ()
    """Published archives that hold the files, which may be placed whole in `root`."""
    subfolders: ClassVar[tuple[str, ...]] = ()
    """Folders of those archives that may be placed in `root`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.sha256, Mapping) or {*self.sha256} != {*self.names}:
            raise refuse("data.sha256", self.sha256, f"a digest for each of {', '.join(sorted(self.names))}")
        for name, digest in self.sha256.items():
            check_sha256(f"data.sha256.{name}", digest)

    @abc.abstractmethod
    def _remotes(self) -> list[Source]:
        """Sources over the network, in order."""

    def _system(self) -> list[Source]:
        """Sources that came with the system."""
        return []

    def _files(self) -> dict[str, bytes]:
        """Verified, uncompressed bytes by file name.

        Raises:
            UserError: If a file is found nowhere, or one that the user placed is damaged.
        """
        return find(
            self.sha256,
            placed=[*self._placed(), *self._system()],
            cache=self._cache(),
            remotes=self._remotes(),
        )

    def _placed(self) -> list[Source]:
        if not self.root:
            return []
        root = Path(self.root).expanduser()
        whole = [root / name for name in self.archives if (root / name).is_file()]
        folder = Folder(path=root, subfolders=(self.name, *self.subfolders))
        return [*(PlacedArchive(path=path) for path in whole), folder]

    def _cache(self) -> Cache:
        import pooch

        return Cache(folder=Path(pooch.os_cache("dpexp")) / self.name)


def check_sha256(key: str, digest: Any) -> None:
    """Refuses what is no digest."""
    if not _SHA256.fullmatch(str(digest)):
        raise refuse(key, digest, "64 hexadecimal digits in lower case")


def checked_urls(urls: Any) -> Iterable[str]:
    """Refuses `data.mirrors` that are no list of URLs."""
    if isinstance(urls, str) or not isinstance(urls, Sequence):
        raise refuse("data.mirrors", urls, "a list of URLs, which may be empty")
    for index, url in enumerate(urls):
        if not str(url).startswith(("https://", "http://")):
            raise refuse(f"data.mirrors[{index}]", url, "a URL that starts with https://")
    return urls
