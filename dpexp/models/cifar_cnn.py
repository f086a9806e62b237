"""The paper's convolutional network for CIFAR-10."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from dpexp import _validate
from dpexp.models.images import as_images, image_shape

__all__ = ["CifarCNN"]


@final
class CifarCNN(nn.Module):
    """Two 5×5 convolutions of 64 channels, ReLU, 2×2 max pools, then two layers of 384 units.

    Abadi et al. (2016), section 5.3: images are cropped to 24×24 pixels, here to the middle; the paper takes
    the `convolutions` from CIFAR-100 and freezes them.

    Args:
        in_features: Values per row.
        out_features: Classes.
        shape: (C, H, W), H and W at least 4; None for one or three square planes.
        crop: Pixels a side that are looked at; None for all.
        hidden_units: Units of each of the two fully connected layers.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        shape: Sequence[int] | None = None,
        crop: int | None = 24,
        hidden_units: int = 384,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape, in_features, at_least=4)
        channels, height, width = self.shape
        self.crop = None if crop is None else _validate.integer("model.crop", crop, at_least=4)
        height, width = (side if self.crop is None else min(side, self.crop) for side in (height, width))
        units = _validate.integer("model.hidden_units", hidden_units, at_least=1)
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        flat = 64 * (height // 2 // 2) * (width // 2 // 2)
        self.hidden = nn.Sequential(nn.Linear(flat, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU())
        self.output = nn.Linear(units, out_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) of rows (B, in_features)."""
        images = _middle(as_images(inputs, self.shape), self.crop)
        logits: Tensor = self.output(self.hidden(self.convolutions(images)))
        return logits


def _middle(images: Tensor, crop: int | None) -> Tensor:
    if crop is None:
        return images
    for dimension in (-2, -1):
        side = images.shape[dimension]
        if side > crop:
            images = images.narrow(dimension, (side - crop) // 2, crop)
    return images
