"""Tempered sigmoids: bounded activations, which keep gradients within the clip norm."""

from typing import final

import torch
from torch import Tensor, nn

from dpexp import _validate

__all__ = ["TemperedSigmoid"]


@final
class TemperedSigmoid(nn.Module):
    """φ(x) = s·σ(T·x) - o, σ the logistic function (Papernot et al. 2021, AAAI, arXiv 2007.14191, section 4).

    s = 2, T = 2, o = 1 is tanh; s = 1, T = 1, o = 0 the logistic function.

    Args:
        scale: s > 0.
        inverse_temperature: T > 0.
        offset: o.
    """

    def __init__(self, scale: float = 2.0, inverse_temperature: float = 2.0, offset: float = 1.0) -> None:
        super().__init__()
        self.scale = _validate.number("model.scale", scale, above=0)
        self.inverse_temperature = _validate.number("model.inverse_temperature", inverse_temperature, above=0)
        self.offset = _validate.number("model.offset", offset)

    def forward(self, inputs: Tensor) -> Tensor:
        """Elementwise, any shape."""
        return self.scale * torch.sigmoid(self.inverse_temperature * inputs) - self.offset
