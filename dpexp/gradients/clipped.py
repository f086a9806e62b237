"""What every gradient engine takes and gives: groups to clip, and sums of clipped gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from dpexp import _validate
from dpexp.clipping import Clipping

__all__ = [
    "ClipGroup",
    "ClippedSum",
    "ClippedSumFunction",
    "Loss",
    "of_finite_losses",
    "per_example_losses",
    "together",
    "weights_of",
]

Loss = Callable[[Tensor, Tensor], Tensor]
"""loss(outputs, targets) with one value per example, shape (B,)."""


@dataclass(frozen=True)
class ClipGroup:
    """Parameters whose gradients share one norm and one clip.

    Attributes:
        parameters: Their names in the model.
        clipping: The rule.
        members: Which examples of the batch count for this group, shape (B,) bool; None means all.
    """

    parameters: tuple[str, ...]
    clipping: Clipping
    members: Tensor | None = None

    def of_rows(self, rows: slice) -> "ClipGroup":
        """The group for a part of the batch."""
        members = None if self.members is None else self.members[rows]
        return ClipGroup(self.parameters, self.clipping, members)


@dataclass(frozen=True)
class ClippedSum:
    """Sums over examples of clipped gradients.

    Attributes:
        sums: Σ_i factor_i · g_i by parameter name, each of the parameter's shape and type, but in float32 at
            least.
        norms: ‖g_i‖ before clipping, not finite where the gradient or the loss is not: shape (B,) from
            `clipped_sum`, (G, B) where there are groups.
        losses: The losses, shape (B,), detached.
    """

    sums: Mapping[str, Tensor]
    norms: Tensor
    losses: Tensor


class ClippedSumFunction(Protocol):
    """A gradient engine: the clipped sums of one microbatch."""

    def __call__(
        self, model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
    ) -> ClippedSum:
        """Sums the clipped gradients of inputs (B, …) and targets (B, …)."""
        ...


def per_example_losses(losses: Tensor, batch_size: int) -> Tensor:
    """Returns `losses` if it has one value per example, or raises `UserError`."""
    if losses.shape == (batch_size, 1):
        raise _validate.UserError(
            f"loss: found a result of shape ({batch_size}, 1), expected ({batch_size},), a value per example."
            "\nTake the last dimension off: outputs.squeeze(1)."
        )
    if losses.shape != (batch_size,):
        raise _validate.UserError(
            f"loss: found a result of shape {tuple(losses.shape)}, expected ({batch_size},), one value per "
            "example.\nA mean or sum hides whose loss is whose, so nothing could be clipped per example: "
            "use reduction='none'."
        )
    return losses


def together(norms: Sequence[Tensor]) -> Tensor:
    """One norm over several tensors: √Σ‖g_i‖² of norms (B,), in the shortest type among them."""
    # Along the rows: torch takes a norm down the columns four times as long.
    joint: Tensor = torch.linalg.vector_norm(torch.stack(list(norms), dim=1), dim=1, dtype=torch.float64)
    shortest = max((norm.dtype for norm in norms), key=lambda dtype: torch.finfo(dtype).eps)
    return joint.to(shortest)  # so that the rounding that clipping allows for is that of the norms


def of_finite_losses(norms: Tensor, losses: Tensor) -> Tensor:
    """`norms` (B,) with NaN where the loss (B,) is not finite: such an example counts for nothing.

    Its gradient may be finite by accident (∞ cut off, NaN masked away), but is not that of any loss.
    """
    return norms + (losses.detach() * 0).to(norms.dtype)  # 0 · ∞ is NaN


def weights_of(groups: Sequence[ClipGroup], norms: Sequence[Tensor]) -> Tensor:
    """Each example's weight in each group's sum: clip factor × membership, shape (G, B).

    Each group's norms (B,) come in their own type, whose rounding clipping allows for.

    An example whose gradient is not finite in any group has weight 0 in all of them.
    """
    rows = []
    for group, norm in zip(groups, norms, strict=True):
        factors = group.clipping.factors(norm)
        rows.append(factors if group.members is None else factors * group.members)
    if len(rows) == 1:
        return rows[0][None]
    return torch.stack(rows) * torch.stack([norm.isfinite() for norm in norms]).all(dim=0)
