"""Poisson lots: every row by a coin of its own."""

from dataclasses import dataclass
from typing import ClassVar, final

from dpexp.accounting import Event, Gaussian, PoissonSampled
from dpexp.accounting.statement import ANY_LOT
from dpexp.lots.sampling import LotStep, Rows, uniform_subset
from dpexp.streams import Stream

__all__ = ["PoissonSampling"]


@final
@dataclass(frozen=True)
class PoissonSampling:
    """Each example enters each lot independently with probability q = L/N (Abadi et al., 2016, Algorithm 1).

    Lots vary in size and may be empty: an empty lot still takes a noisy step and is charged. The declared N
    need not be the true number of rows: each enters with the declared q.
    """

    name: ClassVar[str] = "poisson"
    in_words: ClassVar[str] = "each example enters each lot independently with the same secret probability"
    if_known: ClassVar[str | None] = ANY_LOT
    needs_num_examples: ClassVar[bool] = False
    by_epoch: ClassVar[bool] = False

    def check(self, key: str, size: float, num_examples: int) -> None:
        """Any L in (0, N] will do."""

    def lots_per_epoch(self, size: float, num_examples: int) -> float:
        """N/L: one epoch in expectation."""
        return num_examples / size

    def event(self, gaussian: Gaussian, size: float, num_examples: int) -> Event:
        """What a Gaussian release on one such lot is, to the accountant."""
        return PoissonSampled(gaussian=gaussian, sampling_probability=size / num_examples)

    def lots(self, stream: Stream, num_rows: int) -> "_PoissonLots":
        """The lots under a secret stream."""
        return _PoissonLots(stream, num_rows)


@final
@dataclass(frozen=True)
class _PoissonLots:
    stream: Stream
    num_rows: int

    def draw(self, index: int, lot: LotStep) -> Rows:
        """A binomial size followed by a uniform subset: the same as independent coins, at O(lot)."""
        generator = self.stream.generator(index)
        size = int(generator.binomial(self.num_rows, lot.sampling_probability))
        return uniform_subset(generator, size, self.num_rows)
