"""The sanitizer: per-example gradients in, one private gradient out (clip, sum, add noise, divide by L)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpexp import _validate
from dpexp.clipping import clipping_at
from dpexp.gradients import ClipGroup
from dpexp.noise import Noise, noised
from dpexp.plan import GroupStep, StepPlan

__all__ = ["Sanitizer"]

_COUNTS = 2**62
"""Positions of the counts' noise begin here, beyond those of any lot."""

_NOTHING: Mapping[str, float] = MappingProxyType({})


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
        self._clip_norms: dict[str, float] = {}

    @property
    def state(self) -> Mapping[str, float]:
        """C by group after the last release, where clipping is adaptive; a function of noisy outputs only."""
        return dict(self._clip_norms)

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from the `state` of another sanitizer of the same plan."""
        self._clip_norms = {
            name: _validate.number(f"clip norm of {name}", clip_norm, above=0)
            for name, clip_norm in state.items()
        }

    def in_force(self, step: StepPlan) -> StepPlan:
        """The step with the clip norms, and so the noise, that adaptive clipping has come to."""
        if not self._clip_norms:
            return step
        groups = (
            group if group.query is None else group.at_clip_norm(self._clip_norm(group))
            for group in step.groups
        )
        return replace(step, groups=tuple(groups))

    def clips(self, step: StepPlan, members: Mapping[str, Tensor]) -> Sequence[ClipGroup]:
        """What the gradient engine must clip at this step; `members` (B,) by lot, empty for one lot."""
        return [
            ClipGroup(
                self._groups[group.name],
                clipping_at(group.clipping, group.clip_norm),
                members.get(group.lot),
            )
            for group in self.in_force(step).groups
        ]

    def within(self, norms: Tensor, step: StepPlan, members: Mapping[str, Tensor]) -> dict[str, float]:
        """Σ (b_i - 1/2), b_i = 1[‖g_i‖ <= C], of each group that asks; not private before `release`.

        As in the clipped sums, an example counts for the groups of its lots only, and one whose gradient
        is not finite counts for none.

        Args:
            norms: ‖g_i‖ before clipping, by group, shape (G, B).
            step: The step that the lot was drawn for.
            members: Which examples are in each lot, (B,) by name; empty for one lot.
        """
        groups = self.in_force(step).groups
        asking = [pair for pair in zip(groups, norms, strict=True) if pair[0].query is not None]
        sums: dict[str, float] = {}
        for group, norm in asking:
            finite = norms.isfinite().all(dim=0)
            counted = norm[finite & members.get(group.lot, finite)]
            sums[group.name] = int((counted <= group.clip_norm).sum()) - 0.5 * len(counted)
        return sums

    def release(
        self, sums: Mapping[str, Tensor], step: StepPlan, within: Mapping[str, float] = _NOTHING
    ) -> dict[str, Tensor]:
        """(1/L)·(Σ clipped gradients + N(0, σ²C²I)) by parameter name; then moves the C that adapt.

        Abadi et al. (2016), Algorithm 1, "Add noise": the noise is on the sum, and L is the expected
        lot size, whatever was drawn.

        Args:
            sums: Clipped sums by parameter name.
            step: The step that `sums` was clipped for.
            within: What `within` found, where clipping is adaptive.
        """
        asking = [group for group in step.groups if group.query is not None]
        if {group.name for group in asking} != set(within):
            raise ValueError(f"Expected counts of {[g.name for g in asking]}, found {list(within)}.")
        draws = self._noise.standard_normal(step.index, sum(total.numel() for total in sums.values()))
        released = self._released(sums, self.in_force(step), draws)
        if asking:
            for group, draw in zip(asking, self._counts_noise(step, len(asking)), strict=True):
                self._adapt(group, within[group.name], draw)
        return released

    def _counts_noise(self, step: StepPlan, size: int) -> NDArray[np.float64]:
        """At positions of their own: gradients get the same noise with and without counts."""
        return self._noise.standard_normal(_COUNTS + step.index, size)

    def _released(
        self, sums: Mapping[str, Tensor], step: StepPlan, draws: NDArray[np.float64]
    ) -> dict[str, Tensor]:
        released: dict[str, Tensor] = {}
        used = 0
        for group in step.groups:
            totals = {name: sums[name] for name in self._groups[group.name]}
            values = torch.cat([total.flatten() for total in totals.values()])
            noisy = noised(
                values.cpu().double().numpy(),
                draws[used : used + len(values)],
                noise_std=group.noise_std,
                noise_multiplier=group.noise_multiplier,
                spacing=self._noise.spacing,
            )
            released |= _like(torch.from_numpy(noisy).div_(group.divisor).to(values), totals)
            used += len(values)
        return released

    def _adapt(self, group: GroupStep, within: float, draw: float) -> None:
        query = group.query
        assert query is not None
        noisy = noised(
            np.array([within]),
            np.array([draw]),
            noise_std=query.noise_std,
            noise_multiplier=query.event.noise_multiplier,
            spacing=self._noise.spacing,
        )
        clip_norm = query.next_clip_norm(self._clip_norm(group), float(noisy[0]), group.clip_norm)
        self._clip_norms[group.name] = clip_norm

    def _clip_norm(self, group: GroupStep) -> float:
        return self._clip_norms.get(group.name, group.clip_norm)


def _like(values: Tensor, totals: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One flat vector, cut into views of the shapes (and, where they differ, dtypes) of `totals`."""
    parts = torch.split(values, [total.numel() for total in totals.values()])
    return {
        name: part.to(total).view_as(total) for part, (name, total) in zip(parts, totals.items(), strict=True)
    }
