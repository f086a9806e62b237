"""What was released: frozen descriptions of mechanisms, without saying what they cost.

An event states the mathematics of a release completely. Noise is always stated as a *noise multiplier*:
standard deviation divided by the sensitivity of the noised sum under add-or-remove-one. The accountant
applies the sensitivity of the neighboring relation it prices for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from dpexp import _validate

__all__ = ["Composed", "Event", "Gaussian", "PoissonSampled", "Relation", "Release", "Repeated", "joint"]


class Relation(StrEnum):
    """When two data sets are neighbors; the privacy unit is always one row."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    @property
    def in_words(self) -> str:
        """The relation as part of a sentence."""
        return {
            Relation.ADD_OR_REMOVE_ONE: "adding or removing one example",
            Relation.REPLACE_ONE: "replacing one example by another",
            Relation.ZERO_OUT: "blanking one example",
        }[self]


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Gaussian noise on a sum over all rows.

    Attributes:
        noise_multiplier: σ >= 0, noise std ÷ add-or-remove-one sensitivity of the sum.
        replace_one_factor: Sensitivity under replace-one ÷ under add-or-remove-one. A sum of clipped
            vectors has 2 (from +v to -v); a sum of vvᵀ has √2.
    """

    noise_multiplier: float
    replace_one_factor: float = 2.0

    def __post_init__(self) -> None:
        sigma = _validate.number("noise_multiplier", self.noise_multiplier, at_least=0)
        factor = _validate.number("replace_one_factor", self.replace_one_factor, above=0)
        object.__setattr__(self, "noise_multiplier", sigma)
        object.__setattr__(self, "replace_one_factor", factor)

    def effective_multiplier(self, relation: Relation) -> float:
        """Noise std ÷ the sensitivity under `relation`."""
        if relation is Relation.REPLACE_ONE:
            return self.noise_multiplier / self.replace_one_factor
        return self.noise_multiplier


@dataclass(frozen=True, kw_only=True)
class PoissonSampled:
    """A Gaussian release on a lot that each row enters independently with probability q in [0, 1]."""

    gaussian: Gaussian
    sampling_probability: float

    def __post_init__(self) -> None:
        q = _validate.number("sampling_probability", self.sampling_probability, at_least=0, at_most=1)
        object.__setattr__(self, "sampling_probability", q)


@dataclass(frozen=True)
class Repeated:
    """`count` >= 0 independent releases of the same kind."""

    event: "Event"
    count: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _validate.integer("count", self.count, at_least=0))


@dataclass(frozen=True)
class Composed:
    """Several releases, each with randomness of its own."""

    events: tuple["Event", ...]


Event: TypeAlias = Gaussian | PoissonSampled | Repeated | Composed


@dataclass(frozen=True)
class Release:
    """An event with the name under which ledger and statement list it."""

    name: str
    event: Event


def joint(gaussians: Sequence[Gaussian]) -> Gaussian:
    """The one Gaussian release that several noised sums over the *same* lot make up.

    Rescaled to unit noise, the sensitivities add in quadrature, and one row can reach all of them at
    once: σ_eff = (Σ σ_l⁻²)^(-1/2). Adding up the moments of the parts instead, as the code released with
    Abadi et al. (2016) does, reports too little, because the parts share one draw of the lot.
    """
    if any(part.noise_multiplier == 0 for part in gaussians):
        return Gaussian(noise_multiplier=0)
    if len(gaussians) == 1:
        return gaussians[0]
    inverse = math.hypot(*(1 / part.noise_multiplier for part in gaussians))
    replaced = math.hypot(*(part.replace_one_factor / part.noise_multiplier for part in gaussians))
    return Gaussian(noise_multiplier=1 / inverse, replace_one_factor=replaced / inverse)
