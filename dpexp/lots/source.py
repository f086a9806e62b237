"""`LotSource`: the rows that each optimizer step of a plan sees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpexp.lots.sampling import Lots, LotStep, Rows, Sampling
from dpexp.streams import Stream

__all__ = ["DrawnLot", "LotSource"]


@final
@dataclass(frozen=True)
class DrawnLot:
    """The rows one optimizer step sees.

    Attributes:
        index: t, counted from 0.
        rows: The union of the step's lots, distinct, shape (n,).
        members: For each lot by name, which of `rows` are in it, shape (n,) bool; empty where the step
            has a single lot, which then has all of them.
    """

    index: int
    rows: Rows
    members: Mapping[str, NDArray[np.bool_]]


@final
@dataclass(frozen=True)
class LotSource:
    """Draws the lots of a plan from `num_rows` rows; lot t depends on the stream's key and t alone.

    `PrivacyPlan.check_rows` says whether so many rows make the lots what they are priced as.
    """

    sampling: Sampling
    stream: Stream
    num_rows: int
    _lots: dict[str, Lots] = field(default_factory=dict, init=False, repr=False, compare=False)

    def draw(self, index: int, lots: Sequence[LotStep]) -> DrawnLot:
        """The lots of step t = `index`, each drawn independently of the others, and their union."""
        if len(lots) == 1:
            return DrawnLot(index=index, rows=self._draw_one(index, lots[0]), members={})
        drawn = {lot.name: self._draw_one(index, lot) for lot in lots}
        rows = np.unique(np.concatenate(list(drawn.values())))
        members = {name: np.isin(rows, lot) for name, lot in drawn.items()}
        return DrawnLot(index=index, rows=rows, members=members)

    def _draw_one(self, index: int, lot: LotStep) -> Rows:
        if lot.name not in self._lots:
            self._lots[lot.name] = self.sampling.lots(self.stream.child(lot.name), self.num_rows)
        return self._lots[lot.name].draw(index, lot)
