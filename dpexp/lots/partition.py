"""Shuffled lots: the rows in random order, cut into lots of equal size, and shuffled again each epoch."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpexp.accounting import Event, Gaussian, Partitioned
from dpexp.lots.epoch import AbstractEpochLots
from dpexp.lots.sampling import LotStep, whole_size
from dpexp.streams import Stream

__all__ = ["PartitionSampling"]


@final
@dataclass(frozen=True)
class PartitionSampling:
    """A fresh order of the rows per epoch, cut into ⌊N/L⌋ lots of exactly L; N mod L rows sit the epoch out.

    What data loaders do with `shuffle=True, drop_last=True`, and what Abadi et al. (2016) ran. No
    amplification by shuffling is proven here: an epoch, also one that is broken off, costs what one
    release on all rows costs, whatever L is. N is public and must be the true number of rows.
    """

    name: ClassVar[str] = "partition"
    in_words: ClassVar[str] = "each example is in at most one lot of every epoch"
    if_known: ClassVar[str | None] = None
    needs_num_examples: ClassVar[bool] = True
    by_epoch: ClassVar[bool] = True

    def check(self, key: str, size: float, num_examples: int) -> None:
        """L is a whole number."""
        whole_size(key, size, num_examples, sampling=self.name)

    def lots_per_epoch(self, size: float, num_examples: int) -> float:
        """⌊N/L⌋."""
        return num_examples // int(size)

    def event(self, gaussian: Gaussian, size: float, num_examples: int) -> Event:
        """What a Gaussian release on every lot of one epoch is, to the accountant.

        A row that sits out has given less than the event says.
        """
        return Partitioned(gaussian=gaussian, epochs=1)

    def lots(self, stream: Stream, num_rows: int) -> "_PartitionLots":
        """The lots under a secret stream."""
        return _PartitionLots(stream, num_rows)


@final
class _PartitionLots(AbstractEpochLots):
    def _lots_per_epoch(self, lot: LotStep) -> int:
        return self._num_rows // int(lot.size)

    def _sizes(self, generator: np.random.Generator, count: int, lot: LotStep) -> NDArray[np.int64]:
        return np.full(count, int(lot.size), np.int64)
