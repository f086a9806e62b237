"""Which runs are still being written to: each holds a lock for as long as its process lives."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from dpexp import _validate

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["alive", "close_the_dead"]

_log = logging.getLogger(__name__)
_ALL = "all.lock"


@contextlib.contextmanager
def alive(folder: Path, run_id: str) -> Iterator[None]:
    """Within the block, and while this process lives, other processes see that the run is written to.

    Raises:
        UserError: Another process writes to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_id}.running"
    lock = FileLock(path)
    try:
        with FileLock(folder / _ALL):  # nobody looks for dead runs between the file and its lock
            lock.acquire(timeout=0)
    except Timeout as error:
        hint = "Wait until it is done, or stop it there."
        raise _validate.refuse("resume", run_id, "a run that no other process works on", hint) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def close_the_dead(client: "MlflowClient", folder: Path) -> None:
    """Sets runs to KILLED whose process was killed before it could; those of other stores are left alone."""
    from mlflow.exceptions import MlflowException

    if not folder.exists():
        return
    with FileLock(folder / _ALL):
        for path in folder.glob("*.running"):
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                if client.get_run(path.stem).info.status == "RUNNING":
                    client.set_terminated(path.stem, "KILLED")
                    _log.warning("Run %s was killed; it is closed now.", path.stem)
                path.unlink()
            except MlflowException as error:
                _log.debug("Run %s is not in this store: %s", path.stem, error)
            finally:
                lock.release()
