"""Lots of fixed size, each drawn afresh without replacement."""

from dataclasses import dataclass
from typing import ClassVar, final

from dpexp.accounting import Event, FixedSizeSampled, Gaussian
from dpexp.accounting.statement import ANY_LOT
from dpexp.lots.sampling import LotStep, Rows, uniform_subset, whole_size
from dpexp.streams import Stream

__all__ = ["FixedSizeSampling"]


@final
@dataclass(frozen=True)
class FixedSizeSampling:
    """Each lot is a uniform subset of exactly L of the N rows, independent of the other lots.

    The lots of NoisySGD as analysed by Dong, Su and Roth (2022, arXiv 1905.02383) and Bu et al. (2020).
    N is public and must be the true number of rows, so that neighbors have equally many: replace-one or
    zero-out.
    """

    name: ClassVar[str] = "fixed_size"
    in_words: ClassVar[str] = "each lot is a secret uniform subset of fixed size, drawn afresh"
    if_known: ClassVar[str | None] = ANY_LOT
    needs_num_examples: ClassVar[bool] = True
    by_epoch: ClassVar[bool] = False

    def check(self, key: str, size: float, num_examples: int) -> None:
        """L is a whole number."""
        whole_size(key, size, num_examples, sampling=self.name)

    def lots_per_epoch(self, size: float, num_examples: int) -> float:
        """N/L: one epoch in expectation."""
        return num_examples / size

    def event(self, gaussian: Gaussian, size: float, num_examples: int) -> Event:
        """What a Gaussian release on one such lot is, to the accountant."""
        return FixedSizeSampled(gaussian=gaussian, lot_size=int(size), population=num_examples)

    def lots(self, stream: Stream, num_rows: int) -> "_FixedSizeLots":
        """The lots under a secret stream."""
        return _FixedSizeLots(stream, num_rows)


@final
@dataclass(frozen=True)
class _FixedSizeLots:
    stream: Stream
    num_rows: int

    def draw(self, index: int, lot: LotStep) -> Rows:
        """A uniform subset of L rows, at O(lot)."""
        return uniform_subset(self.stream.generator(index), int(lot.size), self.num_rows)
