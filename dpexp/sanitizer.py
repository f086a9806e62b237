"""The sanitizer: per-example gradients in, one private gradient out (clip, sum, add noise, divide by L)."""

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor

from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup
from dpexp.noise import Noise
from dpexp.plan import StepPlan

__all__ = ["Sanitizer"]


@final
class Sanitizer:
    """Applies a plan's clip norms, noise and divisors to the groups of one model.

    Args:
        groups: Parameter names of each of the plan's groups (`PrivacyPlan.assign`).
        noise: Where noise comes from; drawn once per lot, whatever the number of microbatches.
    """

    def __init__(self, groups: Mapping[str, tuple[str, ...]], noise: Noise) -> None:
        self._groups = groups
        self._noise = noise

    def clips(self, step: StepPlan, members: Mapping[str, Tensor]) -> Sequence[ClipGroup]:
        """What the gradient engine must clip at this step; `members` (B,) by lot, empty for one lot."""
        return [
            ClipGroup(self._groups[group.name], FlatClipping(group.clip_norm), members.get(group.lot))
            for group in step.groups
        ]

    def release(self, sums: Mapping[str, Tensor], step: StepPlan) -> dict[str, Tensor]:
        """(1/L)·(Σ clipped gradients + N(0, σ²C²I)) by parameter name.

        Abadi et al. (2016), Algorithm 1, "Add noise": the noise is on the sum, and L is the expected
        lot size, whatever was drawn.

        Args:
            sums: Clipped sums by parameter name.
            step: The step that `sums` was clipped for.
        """
        draws = self._noise.standard_normal(step.index, sum(total.numel() for total in sums.values()))
        released, used = {}, 0
        for group in step.groups:
            for name in self._groups[group.name]:
                total = sums[name]
                noise = torch.from_numpy(draws[used : used + total.numel()]).mul_(group.noise_std)
                noise = noise.to(total.dtype).to(total.device).view_as(total)
                released[name] = (total + noise) / group.divisor
                used += total.numel()
        return released
