"""What was released: frozen descriptions of mechanisms, without saying what they cost.

An event states the mathematics of a release completely. Noise is always stated as a *noise multiplier*:
standard deviation divided by the sensitivity of the noised sum under add-or-remove-one. The accountant
applies the sensitivity of the neighboring relation it prices for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeAlias

from dpexp import _validate

__all__ = [
    "NOTHING",
    "BallsAndBins",
    "Composed",
    "Event",
    "FixedSizeSampled",
    "Gaussian",
    "Partitioned",
    "PoissonSampled",
    "Relation",
    "Release",
    "Repeated",
    "joint",
]


class Relation(StrEnum):
    """When two data sets are neighbors; the privacy unit is always one row."""

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        """Refuses another word than the three (`Relation("replace_on")`) with the one meant."""
        words = list(cls)
        hint = _validate.did_you_mean(str(value), words)
        raise _validate.refuse("relation", value, f"one of {', '.join(words)}", hint)

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
        if Relation(relation) == Relation.REPLACE_ONE:
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


@dataclass(frozen=True, kw_only=True)
class FixedSizeSampled:
    """A Gaussian release on a lot of exactly `lot_size` of the `population` rows, without replacement.

    Attributes:
        gaussian: The release on the lot.
        lot_size: m, from 1 to n.
        population: n >= 1; public, since the size of the lot depends on it.
    """

    gaussian: Gaussian
    lot_size: int
    population: int

    def __post_init__(self) -> None:
        rows = _validate.integer("population", self.population, at_least=1)
        size = _validate.integer("lot_size", self.lot_size, at_least=1)
        _validate.number("lot_size", size, at_most=rows, hint=f"There are population = {rows} rows.")
        object.__setattr__(self, "population", rows)
        object.__setattr__(self, "lot_size", size)

    @property
    def sampling_probability(self) -> float:
        """m/n."""
        return self.lot_size / self.population


@dataclass(frozen=True, kw_only=True)
class Partitioned:
    """`epochs` passes over the rows in lots, shuffled or not: each row is in one lot of every epoch.

    Every lot has a Gaussian release of its own, and the size of the lots does not matter.
    """

    gaussian: Gaussian
    epochs: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epochs", _validate.integer("epochs", self.epochs, at_least=0))


@dataclass(frozen=True, kw_only=True)
class BallsAndBins:
    """`epochs` rounds of `lots` lots; in every round each row enters one lot, independently and uniformly."""

    gaussian: Gaussian
    lots: int
    epochs: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "lots", _validate.integer("lots", self.lots, at_least=1))
        object.__setattr__(self, "epochs", _validate.integer("epochs", self.epochs, at_least=0))


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))


Event: TypeAlias = (
    Gaussian | PoissonSampled | FixedSizeSampled | Partitioned | BallsAndBins | Repeated | Composed
)


NOTHING = Composed(())
"""What costs nothing: no release, or one that an earlier charge covers."""


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

    Raises:
        UserError: There is no release.
    """
    if not gaussians:
        raise _validate.refuse("gaussians", gaussians, "at least one release")
    if any(part.noise_multiplier == 0 for part in gaussians):
        return Gaussian(noise_multiplier=0)
    if len(gaussians) == 1:
        return gaussians[0]
    inverse = math.hypot(*(1 / part.noise_multiplier for part in gaussians))
    if math.isinf(inverse):  # as good as no noise at all
        return Gaussian(noise_multiplier=0)
    replaced = math.hypot(*(part.replace_one_factor / part.noise_multiplier for part in gaussians))
    return Gaussian(noise_multiplier=1 / inverse, replace_one_factor=replaced / inverse)
