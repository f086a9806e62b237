"""Balls-and-bins lots: in every epoch each row falls into one lot, independently and uniformly."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import BallsAndBins, Event, Gaussian
from dpexp.accounting.statement import ONE_LOT_AN_EPOCH
from dpexp.lots.epoch import AbstractEpochLots
from dpexp.lots.sampling import LotStep
from dpexp.streams import Stream

__all__ = ["BallsAndBinsSampling"]

_WHOLE = 1e-9


@final
@dataclass(frozen=True)
class BallsAndBinsSampling:
    """Each row falls into one of the B = N/L lots of an epoch, independently and uniformly.

    Chua et al. (2025), "Balls-and-bins sampling for DP-SGD", arXiv 2412.16802. Lots vary in size as Poisson's
    do, but every row is seen exactly once an epoch. An epoch is charged whole at its first lot, also where
    training ends within it. The declared N need not be the true number of rows: each falls into one of the
    declared B lots.
    """

    name: ClassVar[str] = "balls_and_bins"
    in_words: ClassVar[str] = (
        "in every epoch each example falls into one secret lot, independently and uniformly"
    )
    if_known: ClassVar[str | None] = ONE_LOT_AN_EPOCH
    needs_num_examples: ClassVar[bool] = False
    by_epoch: ClassVar[bool] = True

    def check(self, key: str, size: float, num_examples: int) -> None:
        """L is N/B for a whole number B of lots."""
        count = num_examples / size
        if abs(count - round(count)) > _WHOLE * count:
            few, many = int(count), int(count) + 1
            hint = (
                f"N/L is the number of lots that rows fall into: set {key}={num_examples / few!r} for {few}, "
                f"or {num_examples / many!r} for {many}."
            )
            raise _validate.refuse(key, size, f"a size of which N = {num_examples} is a multiple", hint)

    def lots_per_epoch(self, size: float, num_examples: int) -> float:
        """B = N/L."""
        return round(num_examples / size)

    def event(self, gaussian: Gaussian, size: float, num_examples: int) -> Event:
        """What a Gaussian release on every lot of one epoch is, to the accountant."""
        return BallsAndBins(gaussian=gaussian, lots=round(num_examples / size))

    def lots(self, stream: Stream, num_rows: int) -> "_BallsAndBinsLots":
        """The lots under a secret stream."""
        return _BallsAndBinsLots(stream, num_rows)


@final
class _BallsAndBinsLots(AbstractEpochLots):
    def _lots_per_epoch(self, lot: LotStep) -> int:
        return round(1 / lot.sampling_probability)

    def _sizes(self, generator: np.random.Generator, count: int, lot: LotStep) -> NDArray[np.int64]:
        # Independent uniform bins are multinomial sizes filled in uniform order.
        return generator.multinomial(self._num_rows, np.full(count, 1 / count)).astype(np.int64)
