"""Noise drawn ahead: the next release's draws are made while the caller computes."""

from contextlib import suppress
from threading import Thread
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpexp.noise.noise import Noise

__all__ = ["NoiseAhead"]


@final
class NoiseAhead:
    """The same draws as `noise`, the next position's made on another core in the meantime.

    A draw is a function of (key, position, size), so whatever the thread has or has not done changes time
    only: draws that are missing or of another position or size are made again in place, where errors
    show. One thread lives for one draw: there is nothing to close, a forked or unpickled copy draws for
    itself, and the interpreter never waits longer than a draw at its end.

    Args:
        noise: What draws. NumPy and ChaCha20 work mostly without the interpreter lock.
        positions: How many positions there will be, T: nothing is drawn beyond T - 1, nor before the
            first call, since the size is only known then.
    """

    def __init__(self, noise: Noise, *, positions: int) -> None:
        self._noise = noise
        self._positions = positions
        self._next: _Draw | None = None

    def __repr__(self) -> str:
        return f"NoiseAhead({self._noise!r}, positions={self._positions})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_next": None}  # draws are secret, and a thread cannot travel

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Draws for the release at `position`, shape (size,); starts those of `position + 1`."""
        draws = self._take(position, size)
        if position + 1 < self._positions:
            self._next = _Draw(self._noise, position + 1, size)
        return draws

    def _take(self, position: int, size: int) -> NDArray[np.float64]:
        ahead, self._next = self._next, None  # handed over once: the caller may overwrite it
        made = ahead.result() if ahead is not None else None
        if ahead is None or made is None or (ahead.position, ahead.size) != (position, size):
            return self._noise.standard_normal(position, size)
        return made


@final
class _Draw:
    """One draw in a thread of its own."""

    def __init__(self, noise: Noise, position: int, size: int) -> None:
        self.position, self.size = position, size
        self._made: NDArray[np.float64] | None = None
        # Not a daemon, which would be cut off inside native code at interpreter exit.
        self._thread = Thread(target=self._run, args=(noise,), name="dpexp-noise-ahead")
        self._thread.start()

    def result(self) -> NDArray[np.float64] | None:
        """The draws, or None if the thread failed or stayed behind in a forked process's parent."""
        self._thread.join()
        return self._made

    def _run(self, noise: Noise) -> None:
        with suppress(Exception):  # the caller draws again in place, and sees the error there
            self._made = noise.standard_normal(self.position, self.size)
