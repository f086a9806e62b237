"""The best of a secret number of private runs, at one price (Papernot and Steinke, 2022). No Hydra."""

from dpexp.selection.candidate import Candidate, Score, Space
from dpexp.selection.law import Law, NegativeBinomial, Poisson
from dpexp.selection.procedure import Selected, select
from dpexp.selection.selection import Selection
from dpexp.selection.words import selection_table

__all__ = [
    "Candidate",
    "Law",
    "NegativeBinomial",
    "Poisson",
    "Score",
    "Selected",
    "Selection",
    "Space",
    "select",
    "selection_table",
]
