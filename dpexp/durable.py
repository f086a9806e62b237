"""Files that are whole or not there, whatever happens to the machine while they are written."""

import os
from pathlib import Path

__all__ = ["make_private_folder", "sync_folder", "write_whole"]


def make_private_folder(folder: Path) -> Path:
    """The folder, made where it is missing; what is made is readable by its owner only."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)
    return folder


def write_whole(path: Path, content: bytes) -> None:
    """Replaces the file at once: a reader sees the old content or the new, also after a power cut.

    Raises:
        OSError: It could not be written; what was there before is still there.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable; on systems that cannot (Windows), they are already."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
