"""Flat rows as images: inputs arrive as `(B, features.dimensions)`, convolutions want `(B, C, H, W)`."""

import math
from collections.abc import Sequence

from torch import Tensor

from dpexp import _validate

__all__ = ["ImageShape", "as_images", "image_shape"]

ImageShape = tuple[int, int, int]
_HINT = "Set model.shape=[channels,height,width], and features=none where pixels are wanted."


def image_shape(shape: Sequence[int] | None, in_features: int, *, at_least: int = 1) -> ImageShape:
    """(C, H, W) of a row of `in_features` values.

    Args:
        shape: As configured; None for one square plane or three of them, whichever has so many values.
        in_features: Values per row.
        at_least: The smallest height and width that the network can work with.

    Raises:
        UserError: The row is no such image.
    """
    found = _square(in_features) if shape is None else list(shape)
    if found is None or len(found) != 3 or math.prod(found) != in_features:
        expected = f"three numbers with product in_features = {in_features}"
        raise _validate.refuse("model.shape", shape, expected, _HINT)
    channels, height, width = (_validate.integer("model.shape", each, at_least=1) for each in found)
    if min(height, width) < at_least:
        expected = f"height and width of at least {at_least}, for this network's kernels"
        raise _validate.refuse("model.shape", [channels, height, width], expected)
    return channels, height, width


def as_images(inputs: Tensor, shape: ImageShape) -> Tensor:
    """Rows (B, …) as (B, C, H, W)."""
    return inputs.reshape(len(inputs), *shape)


def _square(values: int) -> list[int] | None:
    # No number is both a square and three times a square.
    for channels in (1, 3):
        side = math.isqrt(values // channels)
        if channels * side * side == values:
            return [channels, side, side]
    return None
