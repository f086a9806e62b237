"""What was released and what it costs: the privacy accountant, usable alone (NumPy and SciPy only)."""

from dpexp.accounting.accountant import AbstractAccountant, AnyAccountant, UnsupportedEventError
from dpexp.accounting.accountants import LogMoments, MomentsAccountant, RenyiAccountant
from dpexp.accounting.bounds import Kind, PrivacyBound
from dpexp.accounting.budget import Account, Budget, Phase, lots_within
from dpexp.accounting.events import (
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    Relation,
    Release,
    Repeated,
    joint,
)

__all__ = [
    "AbstractAccountant",
    "Account",
    "AnyAccountant",
    "Budget",
    "Composed",
    "Event",
    "Gaussian",
    "Kind",
    "LogMoments",
    "MomentsAccountant",
    "Phase",
    "PoissonSampled",
    "PrivacyBound",
    "Relation",
    "Release",
    "RenyiAccountant",
    "Repeated",
    "UnsupportedEventError",
    "joint",
    "lots_within",
]
