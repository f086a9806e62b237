"""Wide residual networks with group normalization."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn
from torch.nn import functional

from dpexp import _validate
from dpexp.models.images import as_images, image_shape
from dpexp.models.standardized import convolution

__all__ = ["WideResNet"]


@final
class WideResNet(nn.Module):
    """Pre-activation blocks, k times as wide (Zagoruyko and Komodakis 2016, arXiv 1605.07146): WRN-depth-k.

    De et al. (2022, arXiv 2204.13650) train WRN-16-4 and WRN-40-4 under DP-SGD with group normalization of
    16 groups and weight standardization.

    Args:
        in_features: Values per row.
        out_features: Classes.
        shape: (C, H, W); None for one or three square planes.
        depth: 6n + 4: 10, 16, 22, 28, 40 and so on.
        widening: k >= 1: stages of 16k, 32k and 64k channels.
        groups: Groups of the normalization; divides 16.
        weight_standardization: Whether convolutions standardize their weights.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        shape: Sequence[int] | None = None,
        depth: int = 16,
        widening: int = 4,
        groups: int = 16,
        weight_standardization: bool = True,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape, in_features)
        depth = _validate.integer("model.depth", depth, at_least=10)
        if depth % 6 != 4:
            raise _validate.refuse("model.depth", depth, "6n + 4: 10, 16, 22, 28, 40 and so on")
        widening = _validate.integer("model.widening", widening, at_least=1)
        if 16 % _validate.integer("model.groups", groups, at_least=1):
            raise _validate.refuse("model.groups", groups, "a divisor of 16, the channels of the first layer")
        self.stem = convolution(self.shape[0], 16, 3, 1, standardized=weight_standardization)
        blocks: list[nn.Module] = []
        before = 16
        for stage in range(3):
            for place in range((depth - 4) // 6):
                after, stride = 16 * widening * 2**stage, 2 if stage and not place else 1
                blocks.append(_Block(before, after, stride, groups, weight_standardization))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.GroupNorm(groups, before)
        self.output = nn.Linear(before, out_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) of rows (B, in_features)."""
        hidden = self.blocks(self.stem(as_images(inputs, self.shape)))
        logits: Tensor = self.output(functional.relu(self.norm(hidden)).mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, groups: int, standardized: bool) -> None:
        super().__init__()
        self.norm_first, self.norm_second = nn.GroupNorm(groups, inputs), nn.GroupNorm(groups, outputs)
        self.first = convolution(inputs, outputs, 3, stride, standardized=standardized)
        self.second = convolution(outputs, outputs, 3, 1, standardized=standardized)
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else convolution(inputs, outputs, 1, stride, standardized=standardized)

    def forward(self, images: Tensor) -> Tensor:
        active = functional.relu(self.norm_first(images))
        hidden: Tensor = self.second(functional.relu(self.norm_second(self.first(active))))
        shortcut: Tensor = images if self.shortcut is None else self.shortcut(active)
        return hidden + shortcut
