"""Data sets: what they declare publicly, and where their examples come from. NumPy only."""

from dpexp.data.dataset import Dataset
from dpexp.data.digits import Digits
from dpexp.data.mnist import MNIST
from dpexp.data.splits import Examples, Splits

__all__ = ["MNIST", "Dataset", "Digits", "Examples", "Splits"]
