"""Files that lie on this machine: placed by the user, or installed with the system."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpexp._validate import UserError
from dpexp.data.archive import unpacked
from dpexp.data.digest import Corrupt, verified
from dpexp.data.source import Source, Unavailable

__all__ = ["Folder", "PlacedArchive"]

_MEND = "Replace the file with an intact copy, or remove it to have the other sources asked."


@final
@dataclass(frozen=True, kw_only=True)
class Folder(Source):
    """Files in a subfolder or in the folder itself, each plain or with `.gz`.

    Attributes:
        path: The folder.
        subfolders: Names of folders inside it that are looked into first.
        key: Where the folder is set.
    """

    path: Path
    subfolders: tuple[str, ...] = ()
    key: str = "data.root"

    def __str__(self) -> str:
        return f"{self.key} = {str(self.path)!r}"

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yields the files that are there.

        Raises:
            UserError: If a file that the user placed cannot be read or has another digest. Passing it
                over for another source would hide the mistake.
            Unavailable: If files are missing.
        """
        missing = []
        for name, sha256 in wanted.items():
            content = self._read(name, sha256)
            if content is None:
                missing.append(name)
            else:
                yield name, content
        if missing:
            raise Unavailable(f"it does not hold {', '.join(missing)}")

    def _read(self, name: str, sha256: str) -> bytes | None:
        for path in self._candidates(name):
            try:
                return verified(str(path), path.read_bytes(), sha256=sha256)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, Corrupt) as error:
                raise UserError(f"{self.key}: {error}.\n{_MEND}") from error
        return None

    def _candidates(self, name: str) -> Iterator[Path]:
        for folder in (*(self.path / subfolder for subfolder in self.subfolders), self.path):
            yield folder / name
            yield folder / f"{name}.gz"


@final
@dataclass(frozen=True, kw_only=True)
class PlacedArchive(Source):
    """An archive that the user placed whole in `data.root`.

    Attributes:
        path: The tar or zip file.
    """

    path: Path

    def __str__(self) -> str:
        return f"data.root: {str(self.path)!r}"

    def deliver(self, wanted: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yields the wanted files in the archive.

        Raises:
            UserError: If the archive cannot be read, is damaged, or is another one.
        """
        try:
            with self.path.open("rb") as archive:
                yield from unpacked(str(self.path), archive, wanted)
        except (OSError, Unavailable) as error:
            raise UserError(f"data.root: {self.path}: {error}.\n{_MEND}") from error
