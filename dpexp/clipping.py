"""Clipping rules: how one example's gradient is bounded. Each knows the sensitivity it leaves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from dpexp import _validate
from dpexp.accounting import Relation
from dpexp.clip_rules import AUTO_S_STABILITY, Automatic, ClipRule, Flat

__all__ = ["AutomaticClipping", "Clipping", "FlatClipping", "clipping_at"]


class Clipping(Protocol):
    """A rule at a clip norm: all that a gradient engine asks of it."""

    @property
    def clip_norm(self) -> float:
        """C."""
        ...

    def factors(self, norms: Tensor) -> Tensor:
        """What each example's gradient is multiplied by, shape (B,); 0 where its norm is not finite."""
        ...

    def sensitivity(self, relation: Relation) -> float:
        """How far the clipped *sum* can move between neighbors, in L2."""
        ...


@final
@dataclass(frozen=True)
class FlatClipping:
    """g ↦ g / max(1, ‖g‖/C), with one L2 norm over all tensors of a group (Abadi et al., 2016, Algorithm 1).

    Attributes:
        clip_norm: C > 0; ∞ clips nothing and leaves no finite sensitivity.
    """

    clip_norm: float

    def factors(self, norms: Tensor) -> Tensor:
        """What each example's gradient is multiplied by.

        C is first rounded down by more than the rounding error of norms, so that the clipped gradient's
        true norm is at most C.

        Args:
            norms: ‖g‖ of each example, shape (B,).

        Returns:
            Factors in [0, 1], shape (B,); 0 where the norm is not finite.
        """
        # Divided, not multiplied by 1/‖g‖, which overflows where a tiny C still clips.
        highest = torch.finfo(norms.dtype).max
        factors = torch.full_like(norms, min(self.clip_norm / _rounding(norms), highest)).div_(norms)
        return factors.clamp_(max=1.0).nan_to_num_(nan=0.0)

    def sensitivity(self, relation: Relation) -> float:
        """How far the clipped *sum* can move between neighbors, in L2."""
        return self.clip_norm * Flat().sensitivity(relation)


@final
@dataclass(frozen=True)
class AutomaticClipping:
    """g ↦ C·g / (‖g‖ + γ): AUTO-S, which scales every gradient, short ones up as well.

    C then only scales the step, as the learning rate does, and needs no tuning.

    Attributes:
        clip_norm: C > 0, finite.
        stability: γ > 0; keeps the factor of a vanishing gradient at C/γ.

    References:
        Bu, Wang, Zha and Karypis (2023), Automatic clipping, arXiv 2206.07136 (AUTO-S).
    """

    clip_norm: float
    stability: float = AUTO_S_STABILITY

    def __post_init__(self) -> None:
        _validate.number("clip_norm", self.clip_norm, above=0)
        _validate.number("stability", self.stability, above=0)

    def factors(self, norms: Tensor) -> Tensor:
        """What each example's gradient is multiplied by; the result's true norm is below C.

        Args:
            norms: ‖g‖ of each example, shape (B,).

        Returns:
            Factors in [0, C/γ], shape (B,); 0 where the norm is not finite.
        """
        factors = self.clip_norm / (norms * _rounding(norms) + self.stability)
        return _zero_unless_finite(factors.clamp(max=torch.finfo(norms.dtype).max), norms)

    def sensitivity(self, relation: Relation) -> float:
        """How far the clipped *sum* can move between neighbors, in L2."""
        return self.clip_norm * Automatic().sensitivity(relation)


_MADE_BY: Mapping[str, Callable[[float], Clipping]] = {
    "flat": FlatClipping,
    "automatic": AutomaticClipping,
    "adaptive": FlatClipping,  # at the C in force
}


def clipping_at(rule: ClipRule, clip_norm: float) -> Clipping:
    """The plan's rule at the clip norm in force."""
    return _MADE_BY[rule.name](clip_norm)


def _rounding(norms: Tensor) -> float:
    """More than what rounding may have taken from a norm."""
    return 1 + 64 * torch.finfo(norms.dtype).eps


def _zero_unless_finite(factors: Tensor, norms: Tensor) -> Tensor:
    return torch.where(norms.isfinite(), factors, torch.zeros_like(factors))
