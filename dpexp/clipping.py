"""Clipping rules: how one example's gradient is bounded. Each knows the sensitivity it leaves."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from dpexp.accounting import Relation

__all__ = ["FlatClipping"]


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

        Norms are first rounded up by more than their own rounding error, so that the clipped gradient's
        true norm is at most C.

        Args:
            norms: ‖g‖ of each example, shape (B,).

        Returns:
            Factors in [0, 1], shape (B,); 0 where the norm is not finite.
        """
        rounded_up = norms * (1 + 64 * torch.finfo(norms.dtype).eps)
        factors = (self.clip_norm / rounded_up).clamp(max=1.0)
        return torch.where(norms.isfinite(), factors, torch.zeros_like(factors))

    def sensitivity(self, relation: Relation) -> float:
        """How far the clipped *sum* can move between neighbors, in L2."""
        return 2 * self.clip_norm if relation is Relation.REPLACE_ONE else self.clip_norm
