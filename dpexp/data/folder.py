"""A folder in which the user placed files by hand."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dpexp._validate import UserError
from dpexp.data.digest import Corrupt, verified
from dpexp.data.source import Source, Unavailable

__all__ = ["Folder"]


@final
@dataclass(frozen=True, kw_only=True)
class Folder(Source):
    """Files placed by hand: each plain or with `.gz`, in the folder or in its subfolder.

    Attributes:
        path: The folder, as set in `data.root`.
        subfolder: Name of a folder inside it that may hold the files instead.
    """

    path: Path
    subfolder: str

    def __str__(self) -> str:
        return f"data.root = {str(self.path)!r}"

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
                raise UserError(
                    f"data.root: {error}.\n"
                    "Replace the file with an intact copy, or remove it to have the other sources asked."
                ) from error
        return None

    def _candidates(self, name: str) -> Iterator[Path]:
        for folder in (self.path, self.path / self.subfolder):
            yield folder / name
            yield folder / f"{name}.gz"
