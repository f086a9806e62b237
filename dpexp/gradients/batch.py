"""Where the examples of a batch are in a tensor."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

__all__ = ["Batch", "in_full"]

_HALF = (torch.bfloat16, torch.float16)


def in_full(tensor: Tensor) -> Tensor:
    """The tensor in float32 at least: norms, clipping and sums are not for shorter types."""
    return tensor.float() if tensor.dtype in _HALF else tensor


@final
@dataclass(frozen=True)
class Batch:
    """The dimension that counts examples, alone or folded with others.

    Attributes:
        dim: The dimension.
        fold: How many of its entries belong to one example.
        inner: Whether examples are counted fastest, as in a flattened (T, B), or slowest,
            as in a flattened (B, T).
    """

    dim: int
    fold: int = 1
    inner: bool = False

    @property
    def leads(self) -> bool:
        """Whether the tensor is (B, …)."""
        return self.dim == 0 and self.fold == 1

    def fits(self, tensor: Tensor, batch_size: int) -> bool:
        """Whether the dimension has the right size."""
        return tensor.ndim > self.dim and tensor.shape[self.dim] == batch_size * self.fold

    def first(self, tensor: Tensor) -> Tensor:
        """The tensor as (B, …); a folded dimension keeps what belongs to one example."""
        if self.fold == 1:
            return tensor if self.dim == 0 else tensor.movedim(self.dim, 0)
        sizes = (self.fold, -1) if self.inner else (-1, self.fold)
        split = tensor.reshape(*tensor.shape[: self.dim], *sizes, *tensor.shape[self.dim + 1 :])
        return split.movedim(self.dim + self.inner, 0)

    def first_in_full(self, tensor: Tensor) -> Tensor:
        """The same in float32 at least: autocast gives less."""
        return self.first(in_full(tensor))

    def alone(self, tensor: Tensor) -> Tensor:
        """One example of `first`, as the batch of one that the model would have seen."""
        return tensor.unsqueeze(self.dim) if self.fold == 1 else tensor
