"""The sanitizer: per-example gradients in, one private gradient out (clip, sum, add noise, divide by L)."""

from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor

from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup
from dpexp.noise import Noise, noised
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
        released: dict[str, Tensor] = {}
        used = 0
        for group in step.groups:
            totals = {name: sums[name] for name in self._groups[group.name]}
            values = torch.cat([total.flatten() for total in totals.values()]).cpu().double().numpy()
            noisy = noised(
                values,
                draws[used : used + values.size],
                noise_std=group.noise_std,
                noise_multiplier=group.noise_multiplier,
                spacing=self._noise.spacing,
            )
            noisy /= group.divisor
            released |= _like(torch.from_numpy(noisy), totals)
            used += values.size
        return released


def _like(values: Tensor, totals: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One flat float64 vector, cut into tensors of the shapes, dtypes and devices of `totals`."""
    parts = torch.split(values, [total.numel() for total in totals.values()])
    return {
        name: part.to(total.dtype).to(total.device).view_as(total)
        for part, (name, total) in zip(parts, totals.items(), strict=True)
    }
