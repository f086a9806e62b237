"""Keeps a trial apart: whatever it prints, logs or writes is for the private store alone."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = ["apart", "features_in"]

_FEATURES = "DPEXP_FEATURES_DIR"
_STANDARD = (1, 2)  # stdout and stderr, which libraries in C write to as well


@contextlib.contextmanager
def apart(log: Path) -> Iterator[None]:
    """Within the block, stdout, stderr and all loggers go to the end of a file, and new files are private."""
    before = os.umask(0o077)
    try:
        with (
            log.open("a", encoding="utf-8", buffering=1) as file,
            _loggers_to(file),
            _descriptors_to(file.fileno()),
            contextlib.redirect_stdout(file),
            contextlib.redirect_stderr(file),
        ):
            yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def features_in(folder: Path) -> Iterator[None]:
    """Within the block, features of rows are cached in that folder."""
    before = os.environ.get(_FEATURES)
    os.environ[_FEATURES] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FEATURES]
        else:
            os.environ[_FEATURES] = before


@contextlib.contextmanager
def _descriptors_to(target: int) -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in _STANDARD]
    try:
        for number in _STANDARD:
            os.dup2(target, number)
        yield
    finally:
        for number, copy in zip(_STANDARD, kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


@contextlib.contextmanager
def _loggers_to(file: IO[str]) -> Iterator[None]:
    handler = logging.StreamHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    kept = {logger: list(logger.handlers) for logger in _loggers() if logger.handlers}
    try:
        for logger in kept:
            logger.handlers[:] = []
        logging.root.handlers[:] = [handler]
        yield
    finally:
        logging.root.handlers[:] = []
        for logger in _loggers():
            for made in logger.handlers:  # within the block, by a library imported there
                _point(made, file)
        for logger, handlers in kept.items():
            logger.handlers[:] = handlers


def _loggers() -> list[logging.Logger]:
    named = list(logging.Logger.manager.loggerDict.values())
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


def _point(handler: logging.Handler, closed: Any) -> None:
    """To stderr, in place of a file that is about to be closed."""
    if isinstance(handler, logging.StreamHandler) and handler.stream is closed:
        handler.setStream(sys.__stderr__)
