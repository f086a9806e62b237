"""Lots for tests, drawn under a fixed key, and the error rate of each statistical test."""

import numpy as np

from dpexp.lots import (
    BallsAndBinsSampling,
    FixedSizeSampling,
    LotSource,
    LotStep,
    PartitionSampling,
    PoissonSampling,
)
from dpexp.streams import Stream

ALPHA = 1e-4  # error rate of each statistical test; keys are fixed, so a pass stays a pass
SAMPLINGS = (PoissonSampling(), FixedSizeSampling(), PartitionSampling(), BallsAndBinsSampling())


def lot(size, num_rows, name="common"):
    return LotStep(name=name, size=size, sampling_probability=size / num_rows)


def source(sampling, num_rows, key=1):
    return LotSource(sampling, Stream.keyed_by(key).child("lots"), num_rows)


def drawn(sampling, num_rows, size, draws, key=1):
    """The rows of lots 0 … draws - 1."""
    lots = source(sampling, num_rows, key)
    return [lots.draw(t, [lot(size, num_rows)]).rows for t in range(draws)]


def indicators(lots, num_rows):
    """Which rows are in which lot, shape (lots, rows), 0 or 1."""
    inside = np.zeros((len(lots), num_rows))
    for row, rows in enumerate(lots):
        inside[row, rows] = 1
    return inside
