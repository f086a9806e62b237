"""Data sets: what they declare publicly, and where their examples come from. No torch."""

from dpexp.data.arrays import Arrays
from dpexp.data.census import CensusIncome
from dpexp.data.cifar import CIFAR10, CIFAR100
from dpexp.data.dataset import Dataset
from dpexp.data.digits import Digits
from dpexp.data.imdb import IMDB
from dpexp.data.mnist import MNIST
from dpexp.data.own import LightningData, TorchDataset
from dpexp.data.package_files import PackageFiles
from dpexp.data.published import published
from dpexp.data.rows import Rows
from dpexp.data.splits import AnyExamples, Examples, Splits
from dpexp.data.text import HashedNgrams, HashedTokens
from dpexp.data.word_pieces import WordPieces

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "IMDB",
    "MNIST",
    "AnyExamples",
    "Arrays",
    "CensusIncome",
    "Dataset",
    "Digits",
    "Examples",
    "HashedNgrams",
    "HashedTokens",
    "LightningData",
    "PackageFiles",
    "Rows",
    "Splits",
    "TorchDataset",
    "WordPieces",
    "published",
]
