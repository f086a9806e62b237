"""Clipping rules as the plan knows them: how far one example moves the clipped sum, and what else is asked.

What a rule does to gradients stands in `dpexp.clipping`. No torch. Proofs: docs/theory/clipping.md.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, final

from dpexp import _validate
from dpexp.accounting import Gaussian, Relation
from dpexp.accounting.fraction_query import fraction_query

__all__ = ["AUTO_S_STABILITY", "Adaptive", "Automatic", "ClipRule", "Flat", "FractionQuery", "released"]

AUTO_S_STABILITY = 0.01
"""γ of AUTO-S: the default of Bu et al. (2023), arXiv 2206.07136."""

_FARTHEST = 1e6  # an adaptive C stays within this factor of where it started, whatever the noise
_LOT_SIZE_OVER_NOISE = 20  # σ_b = L/20, as Andrew et al. (2021), arXiv 1905.03871, recommend


@final
@dataclass(frozen=True, kw_only=True)
class FractionQuery:
    """One noisy count beside the gradients: how many of a lot's gradients are within C_t.

    Attributes:
        quantile: γ in (0, 1), the fraction that is to be within.
        learning_rate: η_C >= 0.
        noise_std: σ_b > 0, std of the noise on Σ (b_i - 1/2), in examples.
        lot_size: L, the *expected* size of the lot.
    """

    quantile: float
    learning_rate: float
    noise_std: float
    lot_size: float

    @property
    def event(self) -> Gaussian:
        """What the query releases: sensitivity 1/2, or 1 where an example is replaced."""
        return fraction_query(self.noise_std)

    def next_clip_norm(self, clip_norm: float, noisy_sum: float, start: float) -> float:
        """C_{t+1} = C_t · exp(-η_C (b̃ - γ)), b̃ = 1/2 + `noisy_sum`/L (Andrew et al., 2021, Algorithm 1).

        Args:
            clip_norm: C_t.
            noisy_sum: Σ (b_i - 1/2) + N(0, σ_b²).
            start: C_0; the result stays within a factor of a million of it.
        """
        fraction = 0.5 + noisy_sum / self.lot_size
        limit = math.log(_FARTHEST)
        moved = math.log(clip_norm / start) - self.learning_rate * (fraction - self.quantile)
        return start * math.exp(min(max(moved, -limit), limit))


class ClipRule(Protocol):
    """How one example's gradient is bounded."""

    @property
    def name(self) -> str:
        """The word in the configuration."""
        ...

    @property
    def in_words(self) -> str:
        """What it does, as part of a sentence."""
        ...

    def sensitivity(self, relation: Relation) -> float:
        """How far the clipped *sum* can move between neighbors, in L2 and in units of C."""
        ...

    def query(self, lot_size: float) -> FractionQuery | None:
        """What is asked of each lot beside its gradients, for an expected size L."""
        ...


class _Bounded:
    """Every gradient ends in the ball of radius C, and a blank one at 0."""

    def sensitivity(self, relation: Relation) -> float:
        """1, or 2 where one gradient is replaced by its opposite."""
        return 2.0 if Relation(relation) is Relation.REPLACE_ONE else 1.0


class _AsksNothing:
    """Nothing but the gradients is released."""

    def query(self, lot_size: float) -> FractionQuery | None:
        """None."""
        return None


@final
@dataclass(frozen=True)
class Flat(_Bounded, _AsksNothing):
    """g ↦ g / max(1, ‖g‖/C)."""

    name: ClassVar[str] = "flat"
    in_words: ClassVar[str] = "longer gradients scaled down to C"


@final
@dataclass(frozen=True)
class Automatic(_Bounded, _AsksNothing):
    """g ↦ C·g / (‖g‖ + γ): AUTO-S of Bu et al. (2023), arXiv 2206.07136."""

    name: ClassVar[str] = "automatic"
    in_words: ClassVar[str] = f"every gradient scaled to C·‖g‖/(‖g‖ + {AUTO_S_STABILITY:g}) (AUTO-S)"


@final
@dataclass(frozen=True, kw_only=True)
class Adaptive(_Bounded):
    """Flat at a C_t that follows a quantile of the norms (Andrew et al., 2021, arXiv 1905.03871).

    Attributes:
        quantile: γ in (0, 1).
        learning_rate: η_C >= 0.
        noise_std: σ_b > 0 in examples; None for L/20.
    """

    quantile: float
    learning_rate: float
    noise_std: float | None
    name: ClassVar[str] = "adaptive"

    def __post_init__(self) -> None:
        _validate.number("privacy.adaptive.quantile", self.quantile, above=0, below=1)
        _validate.number("privacy.adaptive.learning_rate", self.learning_rate, at_least=0)
        if self.noise_std is not None:
            _validate.number("privacy.adaptive.noise_std", self.noise_std, above=0, hint="null means L/20.")

    @property
    def in_words(self) -> str:
        """The quantile followed, and the query's noise."""
        noise = f"L/{_LOT_SIZE_OVER_NOISE}" if self.noise_std is None else f"{self.noise_std:g}"
        return (
            f"C then follows the {self.quantile:g} quantile of the norms at rate {self.learning_rate:g}, "
            f"by a count of noise std {noise} that ε includes"
        )

    def query(self, lot_size: float) -> FractionQuery | None:
        """The count within C_t."""
        noise_std = lot_size / _LOT_SIZE_OVER_NOISE if self.noise_std is None else self.noise_std
        return FractionQuery(
            quantile=self.quantile,
            learning_rate=self.learning_rate,
            noise_std=noise_std,
            lot_size=lot_size,
        )


def released(rule: ClipRule, noise_multiplier: float, lot_size: float) -> tuple[Gaussian, ...]:
    """What one group releases of one lot: its noised sum, and the answer to the rule's query.

    Args:
        rule: Says how far one example moves the sum, in units of C.
        noise_multiplier: σ = noise std ÷ C.
        lot_size: L.
    """
    # Accountants price zero-out like add-or-remove-one, so the multiplier must hold for both.
    one_row = max(rule.sensitivity(Relation.ADD_OR_REMOVE_ONE), rule.sensitivity(Relation.ZERO_OUT))
    gradients = Gaussian(
        noise_multiplier=noise_multiplier / one_row,
        replace_one_factor=rule.sensitivity(Relation.REPLACE_ONE) / one_row,
    )
    query = rule.query(lot_size)
    return (gradients,) if query is None else (gradients, query.event)
