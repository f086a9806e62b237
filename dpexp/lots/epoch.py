"""One uniform order of the rows per epoch, cut into lots: what shuffled and balls-and-bins lots share."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from dpexp.lots.sampling import LotStep, Rows
from dpexp.streams import Stream

__all__ = ["AbstractEpochLots"]

_SMALL = np.iinfo(np.int32).max


class AbstractEpochLots(ABC):
    """Lots cut from an order that is drawn once per epoch; subclasses say where the cuts are.

    The order of epoch e is a function of (key, e). It is kept for the epoch at hand: 4 bytes a row (8 above
    2³¹ rows), drawn in O(N), which is O(L) a lot, and at once when an epoch's first lot is asked for.

    Args:
        stream: The secret stream.
        num_rows: The true number of rows.
    """

    def __init__(self, stream: Stream, num_rows: int) -> None:
        self._stream, self._num_rows = stream, num_rows
        self._held: tuple[int, int] | None = None
        self._order: NDArray[np.integer] = np.empty(0, np.int32)
        self._cuts: NDArray[np.int64] = np.empty(0, np.int64)

    def draw(self, index: int, lot: LotStep) -> Rows:
        """The rows between two cuts of the epoch that t = `index` is in."""
        count = self._lots_per_epoch(lot)
        epoch, place = divmod(index, count)
        if self._held != (epoch, count):
            self._open(epoch, count, lot)
        return self._order[self._cuts[place] : self._cuts[place + 1]].astype(np.int64)

    @abstractmethod
    def _lots_per_epoch(self, lot: LotStep) -> int:
        """B, the lots of an epoch."""

    @abstractmethod
    def _sizes(self, generator: np.random.Generator, count: int, lot: LotStep) -> NDArray[np.int64]:
        """The sizes of the epoch's lots, shape (B,)."""

    def _open(self, epoch: int, count: int, lot: LotStep) -> None:
        generator = self._stream.generator(epoch)
        sizes = self._sizes(generator, count, lot)
        if len(self._order) != self._num_rows:
            kind = np.int32 if self._num_rows <= _SMALL else np.int64
            self._order = np.empty(self._num_rows, kind)
        self._order[:] = np.arange(self._num_rows, dtype=self._order.dtype)  # what was there must not matter
        generator.shuffle(self._order)
        self._cuts = np.concatenate(([0], np.cumsum(sizes)))
        self._held = (epoch, count)
