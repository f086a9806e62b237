"""Fixed features as layers of torch, for the model that predicts on raw rows."""

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import group_norm

__all__ = ["Directions", "GroupNorm", "Rescaling", "Standardization"]


@final
class Directions(nn.Module):
    """Projects rows (n, …) of d values onto fixed directions (d, k)."""

    directions: Tensor

    def __init__(self, directions: NDArray[np.float32]) -> None:
        super().__init__()
        self.register_buffer("directions", torch.tensor(directions))

    def forward(self, rows: Tensor) -> Tensor:
        """Shape (n, k)."""
        return rows.flatten(1) @ self.directions


@final
class Rescaling(nn.Module):
    """Scales orthonormal directions (d, k) by factors (k,) and leaves the rest of a row as it is."""

    directions: Tensor
    scales: Tensor

    def __init__(self, directions: NDArray[np.float32], scales: NDArray[np.float32]) -> None:
        super().__init__()
        self.register_buffer("directions", torch.tensor(directions))
        self.register_buffer("scales", torch.tensor(scales))

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (n, …) of d values as (n, d)."""
        rows = rows.flatten(1)
        return rows - rows @ self.directions @ (self.directions * (1 - self.scales)).T


@final
class Standardization(nn.Module):
    """Subtracts each channel's mean and divides by its standard deviation, both of shape (K,)."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: NDArray[np.float32], std: NDArray[np.float32]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (n, …) of K·m values, channel by channel, as (n, K·m)."""
        channels = rows.reshape(len(rows), len(self.mean), -1)
        return ((channels - self.mean[:, None]) / self.std[:, None]).flatten(1)


@final
class GroupNorm(nn.Module):
    """Gives each of `groups` equal parts of a row mean 0 and variance 1 (Wu and He, 2018)."""

    def __init__(self, groups: int, epsilon: float) -> None:
        super().__init__()
        self.groups, self.epsilon = groups, epsilon

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (n, …) as (n, d)."""
        return group_norm(rows.flatten(1), self.groups, eps=self.epsilon)
