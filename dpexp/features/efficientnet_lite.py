"""EfficientNet-Lite0 up to its last average, with batch normalization folded into the convolutions."""

import io
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpexp.features.images import ImageShape

__all__ = ["EfficientNetLite0"]


_STAGES = (  # blocks, kernel, stride of the first, expansion, channels out
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _WIDTH = 32, 1280
_EPSILON = 1e-3  # of the batch normalization, as in TensorFlow's models
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels in [0, 1]
_OF_A_LAYER = 6  # tensors: weights; scale, shift, mean, variance and count of the normalization
_OF_THE_CLASSIFIER = 2


@final
class EfficientNetLite0(nn.Module):
    """Rows of pixels in [0, 1] to 1280 features: the images are enlarged, and grey ones made colour.

    Tan and Le (2019), arXiv 1905.11946, without squeeze-and-excitation and with ReLU6 (the Lite variants).

    Args:
        shape: Of the images, with one or three channels.
        size: Pixels a side that they are scaled to.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, shape: ImageShape, size: int) -> None:
        super().__init__()
        self._shape, self._size = (shape.channels, shape.height, shape.width), size
        self.register_buffer("mean", torch.tensor(_MEAN).reshape(3, 1, 1))
        self.register_buffer("std", torch.tensor(_STD).reshape(3, 1, 1))
        self.stem = _Convolution(3, _STEM, 3, 2)
        blocks, before = [], _STEM
        for count, kernel, stride, expansion, after in _STAGES:
            for place in range(count):
                blocks.append(_Block(before, after, kernel, 1 if place else stride, expansion))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = _Convolution(before, _WIDTH, 1, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Features (n, 1280) of rows (n, …)."""
        images = rows.reshape(-1, *self._shape)
        sides = (self._size, self._size)
        images = functional.interpolate(images, sides, mode="bilinear", align_corners=False)
        colours = (images.expand(-1, 3, -1, -1) - self.mean) / self.std
        features: Tensor = self.head(self.blocks(self.stem(colours))).mean(dim=(2, 3))
        return features

    def load(self, content: bytes) -> Self:
        """Itself, with the weights of a file `efficientnet-lite0-*.pth`, fixed.

        Layers are taken in the order that they are applied in, which is that of the file.

        Raises:
            ValueError: It holds another network.
        """
        tensors = list(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True).values())
        layers = [layer for layer in self.modules() if isinstance(layer, _Convolution)]
        if len(tensors) != _OF_A_LAYER * len(layers) + _OF_THE_CLASSIFIER:
            raise ValueError(f"{len(tensors)} tensors are not those of EfficientNet-Lite0")
        for index, layer in enumerate(layers):
            start = _OF_A_LAYER * index
            layer.fold(*tensors[start : start + _OF_A_LAYER - 1])
        return self.requires_grad_(False)


class _Convolution(nn.Module):
    """Padded as TensorFlow pads: by as much as the stride needs, the odd pixel below and to the right."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, *, groups: int = 1, active: bool = True
    ) -> None:
        super().__init__()
        self._kernel, self._stride = kernel, stride
        self.layer = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups)
        self.activation = nn.ReLU6() if active else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        padding = (*self._padding(width), *self._padding(height))
        result: Tensor = self.activation(self.layer(functional.pad(images, padding)))
        return result

    def _padding(self, side: int) -> tuple[int, int]:
        needed = max((-(-side // self._stride) - 1) * self._stride + self._kernel - side, 0)
        return needed // 2, needed - needed // 2

    def fold(self, weights: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Takes the weights of a convolution without bias, and the normalization that follows it."""
        factor = scale / torch.sqrt(variance + _EPSILON)
        values = {"weight": weights * factor.reshape(-1, 1, 1, 1), "bias": shift - mean * factor}
        self.layer.load_state_dict(values)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        layers = [_Convolution(inputs, wide, 1, 1)] if expansion > 1 else []
        layers += [_Convolution(wide, wide, kernel, stride, groups=wide)]
        layers += [_Convolution(wide, outputs, 1, 1, active=False)]
        self.layers = nn.Sequential(*layers)
        self._residual = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.layers(images)
        return images + result if self._residual else result
