"""The experiments of Abadi et al. (2016) that take many runs: Figures 3, 4 and 5, each one command."""

from dpexp.reproduction.figure3 import Figure3
from dpexp.reproduction.figure4 import Figure4
from dpexp.reproduction.figure5 import Figure5
from dpexp.reproduction.sweep import Sweep

__all__ = ["Figure3", "Figure4", "Figure5", "Sweep"]
