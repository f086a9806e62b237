"""A folder whose files appear all at once, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from filelock import FileLock

from dpexp.durable import sync_folder

__all__ = ["whole_folder"]


@contextmanager
def whole_folder(folder: Path, ours: frozenset[str]) -> Iterator[Path]:
    """A new folder to write into, which takes the old one's place when the block is left well.

    After an exception the old one is as it was. Files of the old one that are not `ours` are kept. Like the
    store it is readable by its owner only, since it may hold figures that no ε covers.

    Args:
        folder: Its final place.
        ours: Names of files that are replaced, or go away.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    old = folder.with_name(f".{folder.name}.old")
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if old.exists() and not folder.exists():
            old.rename(folder)  # a crash came between the two renames below
        for left in folder.parent.glob(f".{folder.name}~*.part"):
            shutil.rmtree(left)  # of a process that was killed
        new = Path(mkdtemp(prefix=f".{folder.name}~", suffix=".part", dir=folder.parent))
        try:
            yield new
            _sync(new)
            _swap(new, folder, old, ours)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise


def _sync(folder: Path) -> None:
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    sync_folder(folder)


def _swap(new: Path, folder: Path, old: Path, ours: frozenset[str]) -> None:
    if folder.exists():
        for entry in folder.iterdir():
            if entry.name not in ours:
                copy = shutil.copytree if entry.is_dir() else shutil.copy2
                copy(entry, new / entry.name)
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    new.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)
