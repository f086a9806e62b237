"""`Predictor`: from raw rows to logits, features included; and synthetic rows to try it on."""

from collections.abc import Callable, Mapping, Sequence
from typing import final

import torch
from torch import Tensor, nn

__all__ = ["Predictor", "predictor", "random_rows", "synthetic_rows"]


@final
class Predictor(nn.Module):
    """Fixed features and the network that was trained on them: takes rows as the data set declares them.

    Args:
        features: Rows of `shape` to what the network takes.
        network: To logits (n, classes).
        shape: Of one row; rows that come flat, or in another shape of as many values, are reshaped.
        takes_values: Rows are of values; else of token ids.
    """

    def __init__(
        self, features: nn.Module, network: nn.Module, shape: Sequence[int], *, takes_values: bool
    ) -> None:
        super().__init__()
        self.features, self.network, self.shape = features, network, tuple(shape)
        self.takes_values = takes_values

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (n, classes) of rows (n, …): float32 values, or int64 token ids.

        Raises:
            TypeError: Values come as integers, such as pixels up to 255, on another scale than in training.
        """
        if inputs.is_floating_point() is not self.takes_values:
            expected = "float32 values, scaled as the data set has them" if self.takes_values else "token ids"
            raise TypeError(f"Rows of {inputs.dtype}: expected {expected}.")
        rows = inputs.reshape(len(inputs), *self.shape)
        logits: Tensor = self.network(self.features(rows))
        return logits


def predictor(
    make: Callable[[], nn.Module],
    weights: Mapping[str, Tensor],
    features: nn.Module,
    *,
    shape: Sequence[int],
    takes_values: bool,
    seed: int,
) -> Predictor:
    """A predictor on the CPU, in evaluation mode, that shares nothing with the network that was trained.

    The network is made anew, and takes over parameters and buffers only: one that saw private rows may
    have kept some of them, as attributes of its layers.

    Args:
        make: Makes the network.
        weights: Its released state.
        features: The fitted features.
        shape: Of one raw row.
        takes_values: Raw rows are of values; else of token ids.
        seed: What the network was made under, for whatever it draws and does not count as its state.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make()
    network.load_state_dict(dict(weights))
    made = Predictor(features, network, shape, takes_values=takes_values)
    return made.cpu().requires_grad_(False).eval()


def synthetic_rows(rows: int, shape: Sequence[int], vocabulary: int | None) -> Tensor:
    """Random rows of `shape` in [0, 1), or of token ids below `vocabulary`, the same every time.

    They come from a generator of their own: torch's is as secret as the lots, and what it draws must not
    be published.
    """
    return random_rows((rows,), shape, vocabulary, torch.Generator().manual_seed(0))


def random_rows(
    count: Sequence[int],
    shape: Sequence[int],
    vocabulary: int | None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """`count` random rows of `shape`, in [0, 1), or of token ids below `vocabulary`."""
    if vocabulary is None:
        return torch.rand(*count, *shape, generator=generator)
    return torch.randint(vocabulary, (*count, *shape), generator=generator)
