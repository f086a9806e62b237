"""Clipped sums for any model by `torch.func`: per-example gradients of a microbatch, materialized."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils import _pytree

from dpexp import _validate
from dpexp.gradients.batch import in_full
from dpexp.gradients.clipped import (
    ClipGroup,
    ClippedSum,
    Loss,
    of_finite_losses,
    per_example_losses,
    together,
    weights_of,
)
from dpexp.gradients.graph import Graph
from dpexp.gradients.interception import tensors_of
from dpexp.gradients.loop import loop
from dpexp.gradients.per_example import norms_of
from dpexp.gradients.quiet import without_cost_warnings
from dpexp.memory import is_out_of_memory

__all__ = ["clip", "functional", "per_example_gradients"]


def functional(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
) -> ClippedSum:
    """The clipped sums of one microbatch; needs B times the memory of the parameters in `groups`.

    Where `torch.func` has no rule either (data-dependent control flow, some recurrent kernels), each example
    has a backward pass of its own.
    """
    _refuse_hidden_parameters(loss, model, inputs[:1], targets[:1])
    try:
        with without_cost_warnings():
            return _vectorized(model, loss, inputs, targets, groups)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise  # smaller microbatches mend it, and the loop would only be slow
    return loop(model, loss, inputs, targets, groups)


def _refuse_hidden_parameters(loss: Loss, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    with torch.enable_grad(), torch.random.fork_rng([inputs.device] if inputs.is_cuda else []):
        outputs = model(inputs)
        for output in tensors_of(outputs):
            if output.grad_fn is not None:
                Graph(output.grad_fn)  # refuses what hides from it
        outputs = _pytree.tree_map_only(Tensor, Tensor.detach, outputs)
        depends = any(losses.requires_grad for losses in tensors_of(loss(outputs, targets)))
    if depends:
        raise _validate.UserError(
            "loss: the losses use parameters themselves, expected the model's outputs and the targets only."
            "\nA penalty that does not depend on the data needs no clipping and no noise: add its exact "
            "gradient to the released one."
        )


def per_example_gradients(
    model: nn.Module, loss: Loss
) -> Callable[[dict[str, Tensor], Tensor, Tensor], tuple[dict[str, Tensor], Tensor]]:
    """(parameters by name, inputs (B, …), targets (B, …)) ↦ (gradients (B, *shape) by name, losses (B,))."""

    def example_loss(parameters: dict[str, Tensor], example: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(model, parameters, (example[None],))
        return per_example_losses(loss(outputs, target[None]), 1)[0]

    found: Any = vmap(grad_and_value(example_loss), in_dims=(None, 0, 0), randomness="different")
    return found  # type: ignore[no-any-return]


def clip(groups: Sequence[ClipGroup], gradients: Mapping[str, Tensor], losses: Tensor) -> ClippedSum:
    """Clips gradients (B, *shape) by name that are written out, and sums them."""
    own = [of_finite_losses(_norms(group, gradients), losses) for group in groups]
    weights, norms = weights_of(groups, own), torch.stack(own)
    dropped = ~norms.isfinite().all(dim=0)
    sums = {
        name: _weighted_sum(gradients[name], weight, dropped)
        for group, weight in zip(groups, weights, strict=True)
        for name in group.parameters
    }
    return ClippedSum(sums=sums, norms=norms, losses=losses.detach())


def _vectorized(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
) -> ClippedSum:
    names = [name for group in groups for name in group.parameters]
    trained = {name: model.get_parameter(name).detach() for name in names}
    return clip(groups, *per_example_gradients(model, loss)(trained, inputs, targets))


def _norms(group: ClipGroup, gradients: Mapping[str, Tensor]) -> Tensor:
    return together([norms_of(gradients[name]) for name in group.parameters])


def _weighted_sum(gradients: Tensor, weights: Tensor, dropped: Tensor) -> Tensor:
    if dropped.any():  # 0 · ∞ is NaN: the rows must go, not only their weights
        gradients = torch.where(dropped.view(-1, *[1] * (gradients.ndim - 1)), 0.0, gradients)
    gradients = in_full(gradients)
    total: Tensor = torch.tensordot(weights.to(gradients.dtype), gradients, dims=1)
    return total
