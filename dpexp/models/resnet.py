"""Residual networks for small images, with group normalization: batch normalization mixes examples."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn
from torch.nn import functional

from dpexp import _validate
from dpexp.models.images import as_images, image_shape

__all__ = ["ResNet"]


@final
class ResNet(nn.Module):
    """Three stages of basic blocks (He et al. 2016, arXiv 1512.03385, section 4.2), GroupNorm for BatchNorm.

    Group normalization: Wu and He (2018), arXiv 1803.08494.

    Args:
        in_features: Values per row.
        out_features: Classes.
        shape: (C, H, W); None for one or three square planes.
        depth: 6n + 2: 8, 14, 20 and so on.
        width: Channels of the first stage; doubled in the second and third.
        groups: Groups of the normalization; divides `width`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        shape: Sequence[int] | None = None,
        depth: int = 20,
        width: int = 16,
        groups: int = 8,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape, in_features)
        depth = _validate.integer("model.depth", depth, at_least=8)
        if depth % 6 != 2:
            raise _validate.refuse("model.depth", depth, "6n + 2: 8, 14, 20, 26, 32 and so on")
        groups = _validate.integer("model.groups", groups, at_least=1)
        if _validate.integer("model.width", width, at_least=1) % groups:
            raise _validate.refuse("model.width", width, f"a multiple of model.groups = {groups}")
        self.stem = nn.Conv2d(self.shape[0], width, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, width)
        blocks: list[nn.Module] = []
        before = width
        for stage in range(3):
            for place in range((depth - 2) // 6):
                after, stride = width * 2**stage, 2 if stage and not place else 1
                blocks.append(_Block(before, after, stride, groups))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(before, out_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) of rows (B, in_features)."""
        hidden = functional.relu(self.norm(self.stem(as_images(inputs, self.shape))))
        logits: Tensor = self.output(self.blocks(hidden).mean(dim=(2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm_first, self.norm_second = nn.GroupNorm(groups, outputs), nn.GroupNorm(groups, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.norm_first(self.first(images)))
        return functional.relu(self.norm_second(self.second(hidden)) + self.shortcut(images))
