"""The oracle: one backward pass per example. Slow, and right by construction."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpexp.gradients.batch import in_full
from dpexp.gradients.clipped import (
    ClipGroup,
    ClippedSum,
    Loss,
    of_finite_losses,
    per_example_losses,
    weights_of,
)

__all__ = ["loop"]


def loop(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
) -> ClippedSum:
    """The clipped sums of one microbatch, each example passed through the model alone."""
    names = [name for group in groups for name in group.parameters]
    rows, losses = [], []
    for example, target in zip(inputs, targets, strict=True):
        value = per_example_losses(loss(model(example[None]), target[None]), 1)[0]
        parameters = [model.get_parameter(name) for name in names]
        found = [
            gradient.to_dense() if gradient.is_sparse else gradient
            for gradient in torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        ]
        rows.append(dict(zip(names, map(in_full, found), strict=True)))
        losses.append(value.detach())
    own = [of_finite_losses(_norms(group, rows), torch.stack(losses)) for group in groups]
    weights = weights_of(groups, own)
    sums = {
        name: _weighted_sum([row[name] for row in rows], weight)
        for group, weight in zip(groups, weights, strict=True)
        for name in group.parameters
    }
    return ClippedSum(sums=sums, norms=torch.stack(own), losses=torch.stack(losses))


def _norms(group: ClipGroup, rows: list[dict[str, Tensor]]) -> Tensor:
    tensors = [[row[name] for name in group.parameters] for row in rows]
    squares = [sum(tensor.double().square().sum() for tensor in of_row) for of_row in tensors]
    dtype = max((tensor.dtype for tensor in tensors[0]), key=lambda dtype: torch.finfo(dtype).eps)
    found = torch.stack([torch.as_tensor(square) for square in squares])
    # A square beyond the gradients' own type is not finite, as in the other engines.
    return found.masked_fill(found > torch.finfo(dtype).max, torch.inf).sqrt().to(dtype)


def _weighted_sum(gradients: list[Tensor], weights: Tensor) -> Tensor:
    terms = [weight * g for weight, g in zip(weights, gradients, strict=True) if weight > 0]
    return sum(terms, start=torch.zeros_like(gradients[0]))
