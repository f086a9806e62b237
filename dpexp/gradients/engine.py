"""The way in: per-example gradients, clipped and summed, in microbatches."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpexp import _validate
from dpexp.clipping import FlatClipping
from dpexp.gradients.clipped import ClipGroup, ClippedSum, Loss
from dpexp.gradients.functional import functional
from dpexp.gradients.product_rule import product_rule

__all__ = ["clipped_sum", "grouped_clipped_sum"]


def clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    clip_norm: float,
    physical_batch_size: int | None = None,
) -> ClippedSum:
    """Σ_i g_i / max(1, ‖g_i‖/C) with one joint norm over all trainable parameters.

    Args:
        model: Any module that treats the examples of a batch independently.
        loss: loss(outputs, targets), one value per example, shape (B,).
        inputs: Shape (B, …); B = 0 is fine.
        targets: Shape (B, …).
        clip_norm: C > 0.
        physical_batch_size: How many examples at once; changes memory and nothing else. None: all.

    Returns:
        Sums by parameter name; `norms` of shape (1, B).

    Raises:
        UserError: C or the physical batch size is impossible, or the loss is not one value per example.
    """
    names = tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)
    group = ClipGroup(names, FlatClipping(clip_norm))
    if not clip_norm > 0:
        raise _validate.refuse("clip_norm", clip_norm, "a number > 0")
    return grouped_clipped_sum(model, loss, inputs, targets, [group], physical_batch_size)


def grouped_clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    groups: Sequence[ClipGroup],
    physical_batch_size: int | None = None,
) -> ClippedSum:
    """The same with several groups, each with its own clip and its own members; `norms` is (G, B)."""
    if physical_batch_size is not None:
        _validate.integer("physical_batch_size", physical_batch_size, at_least=1)
    total = len(inputs)
    size = min(physical_batch_size or total, total) or 1
    parts = [
        _microbatch(model, loss, inputs[rows], targets[rows], [group.of_rows(rows) for group in groups])
        for rows in (slice(start, start + size) for start in range(0, total, size))
    ]
    return _merge(parts) if parts else _empty(model, groups, inputs)


def _microbatch(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
) -> ClippedSum:
    return product_rule(model, loss, inputs, targets, groups) or functional(
        model, loss, inputs, targets, groups
    )


def _merge(parts: Sequence[ClippedSum]) -> ClippedSum:
    if len(parts) == 1:
        return parts[0]
    sums = {name: torch.stack([part.sums[name] for part in parts]).sum(dim=0) for name in parts[0].sums}
    norms = torch.cat([part.norms for part in parts], dim=1)
    return ClippedSum(sums=sums, norms=norms, losses=torch.cat([part.losses for part in parts]))


def _empty(model: nn.Module, groups: Sequence[ClipGroup], inputs: Tensor) -> ClippedSum:
    names = [name for group in groups for name in group.parameters]
    sums = {name: torch.zeros_like(model.get_parameter(name)).detach() for name in names}
    dtype = next(iter(sums.values())).dtype
    nothing = torch.zeros(0, dtype=dtype, device=inputs.device)
    return ClippedSum(sums=sums, norms=nothing.expand(len(groups), 0), losses=nothing)
