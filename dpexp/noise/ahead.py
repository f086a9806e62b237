"""Noise drawn ahead: the next release's draws are made while the caller computes."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpexp.noise.noise import Noise

__all__ = ["NoiseAhead"]


@final
class NoiseAhead:
    """The same draws as `noise`, the next position's made on another core in the meantime.

    A draw is a function of (key, position, size), so whatever the thread has or has not done changes time
    only: draws of another position or size are dropped, and made in place. There is nothing to close: the
    thread ends after the last position or with this object, a forked or unpickled copy starts afresh, and
    the interpreter waits at its end for one draw at most.

    It gains only where a core is free: with as many torch threads as cores it slows the step instead
    (docs/theory/noise.md, Cost).

    Args:
        noise: What draws. NumPy does it without the interpreter lock.
        positions: How many positions there will be, T: nothing is drawn beyond T - 1, nor before the
            first call, since the size is only known then.
    """

    def __init__(self, noise: Noise, *, positions: int) -> None:
        self._noise = noise
        self._positions = positions
        self._next: _Ahead | None = None
        self._worker: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    @property
    def spacing(self) -> float:
        """That of the noise drawn ahead."""
        return self._noise.spacing

    def __repr__(self) -> str:
        return f"NoiseAhead({self._noise!r}, positions={self._positions})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._noise, self._positions)  # draws are secret, and a thread cannot travel

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Draws for the release at `position`, shape (size,); starts those of `position + 1`."""
        self._forget_after_fork()
        ahead, self._next = self._next, None  # handed over once: the caller may overwrite it
        if ahead is not None and (ahead.position, ahead.size) == (position, size):
            draws = ahead.made.result()
        else:
            draws = self._noise.standard_normal(position, size)
        self._start(position + 1, size)
        return draws

    def _start(self, position: int, size: int) -> None:
        if position >= self._positions:
            if self._worker is not None:
                self._worker.shutdown(wait=False)
            self._worker = None
            return
        if self._worker is None:
            # Not a daemon thread, which would be cut off inside native code at interpreter exit.
            self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dpexp-noise-ahead")
        made = self._worker.submit(self._noise.standard_normal, position, size)
        self._next = _Ahead(position, size, made)

    def _forget_after_fork(self) -> None:
        if self._process != os.getpid():  # the thread stayed behind in the parent
            self._next, self._worker, self._process = None, None, os.getpid()


@final
@dataclass(frozen=True)
class _Ahead:
    """Draws in the making."""

    position: int
    size: int
    made: Future[NDArray[np.float64]]


def _again(noise: Noise, positions: int) -> NoiseAhead:
    return NoiseAhead(noise, positions=positions)
