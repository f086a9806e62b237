"""A Debian package that holds the files, where `apt-get` can fetch it; it is not installed."""

import io
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpexp.data.archive import unpacked
from dpexp.data.command import fetched_by
from dpexp.data.source import Source, Unavailable

__all__ = ["DebianPackage"]


@final
@dataclass(frozen=True, kw_only=True)
class DebianPackage(Source):
    """The `data.debian_package`, fetched by `apt-get download`, which needs no administrator.

    Attributes:
        name: The package, such as `dataset-fashion-mnist`.
    """

    name: str

    def __str__(self) -> str:
        return f"the Debian package {self.name}"

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Downloads the package into a temporary folder and yields the wanted files found in it.

        Raises:
            Unavailable: If there is no `apt-get`, it fails, or the package lacks a file.
            Corrupt: If a file of that name in the package is not the wanted one.
        """
        with tempfile.TemporaryDirectory() as folder:
            command = ["apt-get", "download", "--quiet", self.name]
            path = fetched_by(command, named="apt-get download", folder=Path(folder), pattern="*.deb")
            tarred = _tarred(path)
        yield from unpacked(self.name, io.BytesIO(tarred), wanted)


def _tarred(path: Path) -> bytes:
    """The package's files as an uncompressed tar file."""
    command = ["dpkg-deb", "--fsys-tarfile", str(path)]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"dpkg-deb cannot open it: {error}") from error
