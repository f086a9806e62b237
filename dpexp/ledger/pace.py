"""How many lots one durable entry reserves: few enough to lose, many enough to cost little time."""

import time
from collections.abc import Callable
from typing import final

__all__ = ["MOST_LOTS", "Pace"]

MOST_LOTS = 10_000
_SECONDS = 0.5  # of lots in one block, where writing an entry takes milliseconds
_WRITES = 100  # a block lasts at least this many times what its entry took to write: 1 % of the time
_LONGEST = 10.0  # seconds of lots in one block, on however slow a disk


@final
class Pace:
    """Sizes of blocks that follow the speed of lots and disk, by the monotonic clock alone.

    Sizes start at one lot and at most double, so that what a torn entry may have reserved is known from
    the entry before it. Steps of the wall clock change nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = 0
        self._writing = 0.0
        self._began = 0.0

    @property
    def most(self) -> int:
        """The largest size that `next_size` may give now."""
        return self.most_after(self._last)

    def most_after(self, size: int) -> int:
        """The largest size after a block of `size` lots."""
        return min(max(2 * size, 1), MOST_LOTS)

    def next_size(self) -> int:
        """Lots of the next block, in [1, `most`]."""
        if self._last == 0:
            return 1
        per_lot = max(self._clock() - self._began, 1e-9) / self._last
        seconds = min(max(_SECONDS, _WRITES * self._writing), _LONGEST)
        return max(1, min(int(seconds / per_lot), self.most))

    def wrote(self, size: int, seconds: float) -> None:
        """Takes note of a block of `size` lots, whose entry took so long to write, and begins."""
        self._last = size
        self._writing = max(seconds, self._writing / 2)
        self._began = self._clock()
