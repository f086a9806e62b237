"""Which examples enter each lot. Indices only; what a sampler does is also what it says it does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpexp.accounting import Event, Gaussian, PoissonSampled
from dpexp.streams import Stream

__all__ = ["DrawnLot", "LotSource", "LotStep", "PoissonSampling", "Rows"]

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LotStep:
    """One lot at one step: its expected size L and its q = L/N."""

    name: str
    size: float
    sampling_probability: float


@final
@dataclass(frozen=True)
class PoissonSampling:
    """Each example enters each lot independently with probability q = L/N (Abadi et al., 2016, Algorithm 1).

    Lots vary in size and may be empty: an empty lot still takes a noisy step and is charged.
    """

    @property
    def name(self) -> str:
        """The name in config and tables."""
        return "poisson"

    @property
    def in_words(self) -> str:
        """The assumption that amplification rests on, as part of a sentence."""
        return "each example enters each lot independently with the same secret probability"

    def event(self, gaussian: Gaussian, sampling_probability: float) -> Event:
        """What a Gaussian release on one such lot is, to the accountant."""
        return PoissonSampled(gaussian=gaussian, sampling_probability=sampling_probability)

    def draw(self, generator: np.random.Generator, sampling_probability: float, num_rows: int) -> Rows:
        """The rows of one lot, distinct, in no meaningful order, shape (n,).

        A binomial size followed by a uniform subset of that size is the product of independent coins,
        and costs O(lot) instead of O(num_rows).
        """
        size = generator.binomial(num_rows, sampling_probability)
        return generator.choice(num_rows, size=size, replace=False, shuffle=False).astype(np.int64)


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
    """Draws the lots of a plan from `num_rows` rows; lot t depends on the stream's key and t alone."""

    sampling: PoissonSampling
    stream: Stream
    num_rows: int

    def draw(self, index: int, lots: Sequence[LotStep]) -> DrawnLot:
        """The lots of step t = `index`, each drawn independently of the others, and their union."""
        drawn = {lot.name: self._draw_one(index, lot) for lot in lots}
        if len(drawn) == 1:
            return DrawnLot(index=index, rows=next(iter(drawn.values())), members={})
        rows = np.unique(np.concatenate(list(drawn.values())))
        members = {name: np.isin(rows, lot) for name, lot in drawn.items()}
        return DrawnLot(index=index, rows=rows, members=members)

    def _draw_one(self, index: int, lot: LotStep) -> Rows:
        generator = self.stream.child(lot.name).generator(index)
        return self.sampling.draw(generator, lot.sampling_probability, self.num_rows)
