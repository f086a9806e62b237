"""Bare parameters that are added, multiplied or repeated: biases, scales, positions, class tokens."""

from collections.abc import Sequence

from torch import Tensor

from dpexp.gradients.batch import Batch
from dpexp.gradients.layout import Source
from dpexp.gradients.per_example import Whole
from dpexp.gradients.rules.use import Finish, Use

__all__ = ["add", "expand", "mul"]


def add(use: Use, input: Tensor, other: Tensor, *, alpha: float = 1) -> Finish | None:
    """Y = X + p, with the parameter on either side."""
    pair = _parameter(use, input, other)
    if pair is None or alpha != 1:
        return None
    source, shape, batch = pair[0], pair[1].shape, use.result
    return lambda gradients: {source: Whole(_reduced(gradients[0], shape, batch))}


def mul(use: Use, input: Tensor, other: Tensor) -> Finish | None:
    """Y = X · p, with the parameter on either side."""
    pair = _parameter(use, input, other)
    if pair is None or not isinstance(input, Tensor) or not isinstance(other, Tensor):
        return None
    source, shape, batch = pair[0], pair[1].shape, use.result
    factor = use.save(other if pair[1] is input else input)
    return lambda gradients: {source: Whole(_reduced(gradients[0] * factor.raw, shape, batch))}


def expand(use: Use, input: Tensor, *sizes: int) -> Finish | None:
    """One parameter for every example."""
    source, shape, batch = use.source(input), input.shape, use.result
    assert source is not None
    return lambda gradients: {source: Whole(_reduced(gradients[0], shape, batch))}


def _parameter(use: Use, *arguments: Tensor) -> tuple[Source, Tensor] | None:
    found = [(use.source(argument), argument) for argument in arguments]
    sources = [(source, argument) for source, argument in found if source is not None]
    return sources[0] if len(sources) == 1 else None


def _reduced(gradient: Tensor, shape: Sequence[int], batch: Batch) -> Tensor:
    """Sums a gradient over what was broadcast from `shape`, but not over the batch: (B, *shape)."""
    aligned = [1] * (gradient.ndim - len(shape)) + list(shape)
    if batch.fold == 1:
        del aligned[batch.dim]
    broadcast = [i + 1 for i, size in enumerate(aligned) if size == 1]
    gradient = batch.first_in_full(gradient)
    if broadcast:
        gradient = gradient.sum(dim=broadcast)
    return gradient.reshape(-1, *shape)
