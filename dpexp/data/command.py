"""A package manager of the user's, asked to fetch one package into a temporary folder."""

import logging
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dpexp.data.source import Unavailable

__all__ = ["fetched_by"]

logger = logging.getLogger(__name__)

_TIMEOUT_S = 180


def fetched_by(command: Sequence[str], *, named: str, folder: Path, pattern: str) -> Path:
    """Runs a command in an empty folder, and returns the archive that it left there.

    Args:
        command: Program and arguments.
        named: What the command is called in messages, such as `npm pack`.
        folder: Where it runs.
        pattern: What the archive's name looks like, such as `*.tgz`.

    Raises:
        Unavailable: If there is no such program, it fails or hangs, or leaves no archive.
    """
    program = shutil.which(command[0])
    if program is None:
        raise Unavailable(f"{command[0]} is not on the PATH")
    logger.info("running %s", " ".join(command))
    try:
        done = subprocess.run(
            [program, *command[1:]], cwd=folder, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{named} did not end within {_TIMEOUT_S} s") from error
    except OSError as error:
        raise Unavailable(f"{named} did not start: {error}") from error
    archive = next(folder.glob(pattern), None)
    if done.returncode or archive is None:
        raise Unavailable(f"{named} ended with status {done.returncode}: {_reason(done.stderr)}")
    return archive


def _reason(stderr: bytes) -> str:
    # npm says the error's code and summary in its first lines; its last only names a log file.
    lines = stderr.decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if not line.lower().startswith("warning")]
    return "; ".join(errors[:2]) or "it printed no error"
