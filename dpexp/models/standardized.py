"""Convolutions by standardized weights."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["StandardizedConv2d", "convolution"]


@final
class StandardizedConv2d(nn.Conv2d):
    """A convolution whose weights have mean 0 and variance 1/fan-in for every output channel.

    Qiao et al. (2019), "Micro-batch training with batch-channel normalization and weight standardization",
    arXiv 1903.10520, scaled as Brock, De and Smith (2021, arXiv 2101.08692). De et al. (2022, arXiv
    2204.13650) found it to help under DP-SGD.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """As `nn.Conv2d`."""
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        fan_in = self.weight[0].numel()
        weight = (self.weight - mean) * torch.rsqrt(variance * fan_in + 1e-4)
        return functional.conv2d(inputs, weight, self.bias, self.stride, self.padding)


def convolution(inputs: int, outputs: int, kernel: int, stride: int, *, standardized: bool) -> nn.Conv2d:
    """A convolution without bias that keeps the size of the image, up to the stride."""
    kind = StandardizedConv2d if standardized else nn.Conv2d
    return kind(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
