"""The way in: per-example gradients, clipped and summed, in microbatches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import torch
from torch import Tensor, nn

from dpexp import _validate
from dpexp.clipping import FlatClipping
from dpexp.gradients.batch import in_full
from dpexp.gradients.book_keeping import book_keeping
from dpexp.gradients.clipped import ClipGroup, ClippedSum, ClippedSumFunction, Loss
from dpexp.gradients.functional import functional
from dpexp.gradients.layout import Unexpected, layout_of, renewed_layout

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
        Sums by parameter name, in the parameter's type or float32 if that is shorter (cast them before they
        become a `.grad`); `norms` of shape (B,).

    Raises:
        UserError: C or the physical batch size is impossible, or the loss is not one value per example.
    """
    names = tuple(name for name, parameter in model.named_parameters() if parameter.requires_grad)
    group = ClipGroup(names, FlatClipping(clip_norm))
    if not clip_norm > 0:
        raise _validate.refuse("clip_norm", clip_norm, "a number > 0")
    found = grouped_clipped_sum(model, loss, inputs, targets, [group], physical_batch_size)
    return replace(found, norms=found.norms[0])


def grouped_clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    groups: Sequence[ClipGroup],
    physical_batch_size: int | None = None,
    *,
    engine: ClippedSumFunction | None = None,
) -> ClippedSum:
    """The same with several groups, each with its own clip and its own members; `norms` is (G, B).

    `engine` takes the microbatches in place of book-keeping, such as `Compiled`.
    """
    if physical_batch_size is not None:
        _validate.integer("physical_batch_size", physical_batch_size, at_least=1)
    for name, rows in {"inputs": inputs, "targets": targets}.items():
        if not isinstance(rows, Tensor):
            hint = "Of several inputs to a model, make one tensor, which the model takes apart."
            raise _validate.refuse(f"type of {name}", type(rows).__name__, "one tensor of shape (B, …)", hint)
    total = len(inputs)
    if not total:
        return _empty(model, groups, inputs)
    parameters = {name: _parameter(model, name) for group in groups for name in group.parameters}
    work = engine or partial(_microbatch, parameters)
    size = physical_batch_size or total
    if size >= total:
        return work(model, loss, inputs, targets, groups)
    slices = [slice(start, start + size) for start in range(0, total, size)]
    parts = (
        work(model, loss, inputs[rows], targets[rows], [group.of_rows(rows) for group in groups])
        for rows in slices
    )
    return reduce(_add, parts)


def _parameter(model: nn.Module, name: str) -> nn.Parameter:
    """`model.get_parameter(name)` at a tenth of its cost, which each lot pays for each parameter."""
    *path, last = name.split(".")
    try:
        module = reduce(lambda parent, child: parent._modules[child], path, model)  # type: ignore[arg-type, return-value]
        found: nn.Parameter = module._parameters[last]  # type: ignore[assignment]
    except KeyError as error:
        raise _validate.refuse("groups", name, "names of the model's parameters") from error
    if not found.requires_grad:
        raise _validate.refuse("groups", name, "names of parameters that train", f"{name} is frozen.")
    if found.is_complex():
        hint = "Keep a real parameter, and view it as complex (torch.view_as_complex) where it is used."
        raise _validate.refuse("groups", name, "names of real parameters", hint)
    return found


def _microbatch(
    parameters: Mapping[str, nn.Parameter],
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    groups: Sequence[ClipGroup],
) -> ClippedSum:
    trained = tuple(parameters)
    layout = layout_of(model, inputs, trained)
    while not layout.reason:
        try:
            return book_keeping(model, loss, inputs, targets, groups, layout, parameters)
        except Unexpected as error:
            layout = renewed_layout(model, inputs, trained, str(error))
    return functional(model, loss, inputs, targets, groups)


def _add(total: ClippedSum, part: ClippedSum) -> ClippedSum:
    """Adds a part in place: the sums of a microbatch belong to nobody else."""
    for name, value in part.sums.items():
        total.sums[name].add_(value)
    norms, losses = torch.cat([total.norms, part.norms], dim=1), torch.cat([total.losses, part.losses])
    return ClippedSum(sums=total.sums, norms=norms, losses=losses)


def _empty(model: nn.Module, groups: Sequence[ClipGroup], inputs: Tensor) -> ClippedSum:
    names = [name for group in groups for name in group.parameters]
    sums = {name: torch.zeros_like(in_full(model.get_parameter(name))).detach() for name in names}
    dtype = next(iter(sums.values())).dtype
    nothing = torch.zeros(0, dtype=dtype, device=inputs.device)
    return ClippedSum(sums=sums, norms=nothing.expand(len(groups), 0), losses=nothing)
