"""A small convolutional network trained without privacy, on public data only; see `Pretrained`."""

from collections.abc import Sequence
from typing import Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dpexp.features.features import Inputs
from dpexp.features.images import ImageShape

__all__ = ["ConvolutionalLayers", "trained_on"]

_BATCH = 128
_HIDDEN = 128


@final
class ConvolutionalLayers(nn.Module):
    """5×5 convolutions with ReLU, each followed by a 2×2 max pool, as in Abadi et al. (2016), section 5.3.

    Args:
        shape: Of the images.
        channels: That come out of each layer.
        crop: Pixels a side that are looked at, in the middle; None for all.
    """

    def __init__(self, shape: ImageShape, channels: Sequence[int], crop: int | None = None) -> None:
        super().__init__()
        self._shape = (shape.channels, shape.height, shape.width)
        seen = shape.cropped("features.crop", crop)
        top, left = (shape.height - seen.height) // 2, (shape.width - seen.width) // 2
        self._rows, self._columns = slice(top, top + seen.height), slice(left, left + seen.width)
        layers: list[nn.Module] = []
        for before, after in zip([shape.channels, *channels], channels, strict=False):
            layers += [nn.Conv2d(before, after, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers)

    def forward(self, rows: Tensor) -> Tensor:
        """Features (n, channels·height·width) of rows (n, …)."""
        images = rows.reshape(-1, *self._shape)[:, :, self._rows, self._columns]
        features: Tensor = self.layers(images).flatten(1)
        return features

    def load(self, weights: NDArray[np.float32]) -> Self:
        """Itself, with its parameters from one vector, fixed."""
        vector_to_parameters(torch.tensor(weights.ravel()), self.parameters())
        return self.requires_grad_(False)


def trained_on(
    inputs: Inputs,
    targets: NDArray[np.int64],
    layers: ConvolutionalLayers,
    *,
    values: int,
    epochs: int,
    lr: float,
    key: int,
) -> NDArray[np.float32]:
    """The parameters of `layers` after training them, under two linear layers, by Adam.

    Args:
        inputs: Public rows (N, …).
        targets: Their classes (N,).
        layers: Trained in place.
        values: Features per row.
        epochs: Passes over the rows.
        lr: Learning rate; decays to 0 in a straight line.
        key: Public number that the initial parameters and the order are drawn from.

    Returns:
        One row, shape (1, parameters).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key)
        for module in layers.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()
        network = nn.Sequential(
            layers, nn.Linear(values, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, int(targets.max()) + 1)
        )
        _train(network, torch.tensor(inputs), torch.tensor(targets), epochs, lr)
    return parameters_to_vector(layers.parameters()).detach().numpy()[None].copy()


def _train(network: nn.Module, inputs: Tensor, targets: Tensor, epochs: int, lr: float) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    order = torch.cat([torch.randperm(len(targets)) for _ in range(epochs)])
    steps = range(0, len(order), _BATCH)
    for start in track(steps, f"training public layers for {epochs} epochs", transient=True):
        optimizer.param_groups[0]["lr"] = lr * (1 - start / len(order))
        rows = order[start : start + _BATCH]
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
