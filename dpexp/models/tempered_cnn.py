"""The small convolutional network with bounded activations for MNIST and Fashion-MNIST."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from dpexp.models.images import as_images, image_shape
from dpexp.models.tempered_sigmoid import TemperedSigmoid

__all__ = ["TemperedCNN"]

_SMALLEST = 14  # pixels a side; one fewer leaves nothing after the second pool


@final
class TemperedCNN(nn.Module):
    """Convolutions 16@8×8/2 and 32@4×4/2, each with a 2×2 max pool of stride 1, then 32 units.

    Papernot et al. (2021), "Tempered sigmoid activations for deep learning with differential privacy", arXiv
    2007.14191, table 1: 26,010 parameters on 28×28 pixels.

    Args:
        in_features: Values per row.
        shape: (C, H, W), H and W at least 14; None for one or three square planes.
        out_features: Classes.
        scale: s of the activation; `TemperedSigmoid`.
        inverse_temperature: T of the activation.
        offset: o of the activation.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        shape: Sequence[int] | None = None,
        scale: float = 2.0,
        inverse_temperature: float = 2.0,
        offset: float = 1.0,
    ) -> None:
        super().__init__()
        self.shape = image_shape(shape, in_features, at_least=_SMALLEST)
        channels, height, width = self.shape

        def activation() -> TemperedSigmoid:
            return TemperedSigmoid(scale, inverse_temperature, offset)

        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 8, stride=2, padding=3),
            activation(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, stride=2),
            activation(),
            nn.MaxPool2d(2, 1),
            nn.Flatten(),
            nn.Linear(32 * _left(height) * _left(width), 32),
            activation(),
        )
        self.output = nn.Linear(32, out_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) of rows (B, in_features)."""
        logits: Tensor = self.output(self.layers(as_images(inputs, self.shape)))
        return logits


def _left(side: int) -> int:
    """Pixels a side after both convolutions and pools."""
    first = (side - 2) // 2  # ⌊(side + 6 - 8)/2⌋ + 1, less 1 by the pool
    return (first - 4) // 2
