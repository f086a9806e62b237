"""Published files, such as the weights of a public network, out of a package that is never installed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpexp._validate import refuse
from dpexp.data.cache import Cache
from dpexp.data.fetched import check_sha256
from dpexp.data.folder import Folder, PlacedArchive
from dpexp.data.pypi import PyPIPackage
from dpexp.data.search import find
from dpexp.data.source import Source

__all__ = ["PackageFiles"]


@final
@dataclass(frozen=True, kw_only=True)
class PackageFiles:
    """Files that are looked for in `root`, in the user's cache and in a wheel, and fetched when first needed.

    A file is used only if it has the digest given here. Nothing of the package is imported or run.

    Attributes:
        name: The folder in the user's cache, and a subfolder of `root`.
        root: Folder in which the user placed the files or the wheel; None or an empty text for none.
        pypi_package: Package and version whose wheel holds the files; None for none.
        archive_sha256: Digest of that wheel.
        sha256: Digest of each file by file name.
    """

    name: str
    root: str | None
    pypi_package: str | None
    archive_sha256: str
    sha256: Mapping[str, str]

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, Mapping) or not self.sha256:
            raise refuse("sha256", self.sha256, "a digest for each file, by its name")
        check_sha256("archive_sha256", self.archive_sha256)
        for name, digest in self.sha256.items():
            check_sha256(f"sha256.{name}", digest)

    def read(self, name: str) -> bytes:
        """Verified bytes of one of the files; where it must be fetched, all of them are kept.

        Raises:
            UserError: It is found nowhere, one that the user placed is damaged, or there is no such file.
        """
        if name not in self.sha256:
            raise refuse(f"sha256.{name}", None, "the digest of this file, which is needed")
        return find(self.sha256, placed=self._placed(), cache=self._cache(), remotes=self._remotes())[name]

    def _placed(self) -> list[Source]:
        if not self.root:
            return []
        root = Path(self.root).expanduser()
        package = (self.pypi_package or "").partition("==")[0].replace("-", "_")
        wheels = sorted(root.glob(f"{package}-*.whl")) if package else []
        return [*(PlacedArchive(path=wheel) for wheel in wheels), Folder(path=root, subfolders=(self.name,))]

    def _cache(self) -> Cache:
        import pooch

        return Cache(folder=Path(pooch.os_cache("dpexp")) / self.name)

    def _remotes(self) -> list[Source]:
        if not self.pypi_package:
            return []
        return [PyPIPackage(spec=self.pypi_package, sha256=self.archive_sha256, wheel=True)]
