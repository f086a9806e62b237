"""Scale and shift of normalizations that look at one example at a time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dpexp import _validate
from dpexp.gradients.layout import Source
from dpexp.gradients.per_example import PerExample, Whole
from dpexp.gradients.rules.product import chunks
from dpexp.gradients.rules.use import Finish, Use

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def layer_norm(
    use: Use,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Finish | None:
    """Input (B, …, *normalized_shape)."""
    shape = list(normalized_shape)
    return _last(use, input, shape, weight, bias, lambda x: functional.layer_norm(x, shape, eps=eps))


def rms_norm(
    use: Use,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Finish | None:
    """Input (B, …, *normalized_shape)."""
    shape = list(normalized_shape)
    return _last(use, input, shape, weight, None, lambda x: functional.rms_norm(x, shape, eps=eps))


def group_norm(
    use: Use,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Finish | None:
    """Input (B, C, …)."""
    return _channels(use, input, weight, bias, lambda x: functional.group_norm(x, num_groups, eps=eps))


def instance_norm(
    use: Use,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Finish | None:
    """Input (B, C, …) with statistics of its own."""
    if not use_input_stats:
        return batch_norm(use, input, running_mean, running_var, weight, bias, False, momentum, eps)
    return _channels(use, input, weight, bias, lambda x: functional.instance_norm(x, eps=eps))


def batch_norm(
    use: Use,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Finish | None:
    """Input (B, C, …) with fixed statistics; those of the batch are refused."""
    if training:
        name = use.source(weight) or use.source(bias)
        raise _validate.UserError(
            f"model: {name} belongs to a batch normalization over the examples of a batch, expected none."
            "\nOne example would move the gradients of others: use GroupNorm or LayerNorm, or a layer whose "
            "train() keeps it in the eval mode."
        )
    assert running_mean is not None
    assert running_var is not None
    mean, var = running_mean.clone(), running_var.clone()
    return _channels(
        use, input, weight, bias, lambda x: functional.batch_norm(x, mean, var, training=False, eps=eps)
    )


_Normalize = Callable[[Tensor], Tensor]


def _last(
    use: Use,
    images: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    normalize: _Normalize,
) -> Finish | None:
    """Of the last dimensions: what is between them and the batch is summed."""
    if use.batch(images) is None:
        return None
    return _affine(use, images, weight, bias, normalize, slice(1, -len(shape)))


def _channels(
    use: Use, images: Tensor, weight: Tensor | None, bias: Tensor | None, normalize: _Normalize
) -> Finish | None:
    """Of dimension 1: what follows is summed."""
    if not use.leads(images):
        return None
    return _affine(use, images, weight, bias, normalize, slice(2, None))


def _affine(
    use: Use, images: Tensor, weight: Any, bias: Any, normalize: _Normalize, positions: slice
) -> Finish:
    """Y = γ X̂ + β: g_γ = Σ b x̂ and g_β = Σ b over the positions."""
    scale, shift, result = use.source(weight), use.source(bias), use.result
    saved = None if scale is None else use.save(images)

    def finish(gradients: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        gradient = result.first_in_full(gradients[0])
        found: dict[Source, PerExample] = {}
        summed = tuple(range(gradient.ndim))[positions]
        if shift is not None:
            found[shift] = Whole(_sum(gradient, summed))
        if scale is not None and saved is not None:
            found[scale] = Whole(_scale_gradients(saved.tensor, gradient, normalize, summed))
        return found

    return finish


def _scale_gradients(
    images: Tensor, gradients: Tensor, normalize: _Normalize, summed: tuple[int, ...]
) -> Tensor:
    parts = [
        _sum(normalize(images[rows]).mul_(gradients[rows]), summed)
        for rows in chunks(len(images), images[:1].numel())
    ]
    return torch.cat(parts)


def _sum(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    return values.sum(dim=dims) if dims else values
