"""Which examples enter each lot. Indices only; what a sampler does is also what it says it does."""

from dpexp.lots.balls_and_bins import BallsAndBinsSampling
from dpexp.lots.fixed_size import FixedSizeSampling
from dpexp.lots.partition import PartitionSampling
from dpexp.lots.poisson import PoissonSampling
from dpexp.lots.sampling import Lots, LotStep, Rows, Sampling
from dpexp.lots.source import DrawnLot, LotSource

__all__ = [
    "BallsAndBinsSampling",
    "DrawnLot",
    "FixedSizeSampling",
    "LotSource",
    "LotStep",
    "Lots",
    "PartitionSampling",
    "PoissonSampling",
    "Rows",
    "Sampling",
]
