"""Augmented views of examples, drawn anew for every lot; their gradients are averaged before clipping.

De et al. (2022), "Unlocking high-accuracy differentially private image classification through scale",
arXiv 2204.13650: K views of each example cost computation and no privacy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import final

import torch
from torch import Tensor

from dpexp import _validate
from dpexp.streams import Stream

__all__ = ["Identity", "Shifts", "Transform", "Views"]

Transform = Callable[[Tensor, int, torch.Generator], Tensor]
"""transform(example, count, generator): `count` views of an example (…), shape (count, …), of its dtype."""


@final
@dataclass(frozen=True, kw_only=True)
class Views:
    """K views of each example.

    Formal guarantees:
        The views of an example are a function of the example and of randomness of its own, so that adding
        or removing an example leaves the others' views as they are, and the mean of its gradients is
        clipped to C as a single gradient would be: sensitivity and ε do not change.

    Attributes:
        count: K >= 1.
        transform: Makes the views of one example.
    """

    count: int
    transform: Transform

    def __post_init__(self) -> None:
        _validate.integer("views.count", self.count, at_least=1)

    def of(self, inputs: Tensor, lot: int, stream: Stream) -> Tensor:
        """The views of inputs (B, …) in lot number `lot` >= 0, shape (B, K, …).

        Raises:
            UserError: The transform gives something else than K views.
        """
        # A seed for each example: how much randomness a transform draws for one cannot shift another's.
        seeds = stream.generator(lot).integers(2**63, size=len(inputs))
        views = [
            self._views(example, torch.Generator().manual_seed(int(seed)))
            for example, seed in zip(inputs, seeds, strict=True)
        ]
        return torch.stack(views) if views else inputs[:, None].expand(0, self.count, *inputs.shape[1:])

    def _views(self, example: Tensor, generator: torch.Generator) -> Tensor:
        found = self.transform(example, self.count, generator)
        expected = (self.count, *example.shape)
        if tuple(found.shape) != expected or found.dtype != example.dtype:
            raise _validate.UserError(
                f"views.transform: found a result of shape {tuple(found.shape)} and {found.dtype}, expected "
                f"{expected} and {example.dtype}.\nIt is called as transform(example, count, generator) and "
                "returns `count` views stacked."
            )
        return found


@final
@dataclass(frozen=True)
class Identity:
    """The example itself, `count` times."""

    def __call__(self, example: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Shape (count, …)."""
        return example.expand(count, *example.shape)


@final
@dataclass(frozen=True, kw_only=True)
class Shifts:
    """Images moved by up to `pixels` in both directions, with zeros moved in.

    Attributes:
        shape: (…, height, width) of an image, whose rows may be stored flat.
        pixels: The farthest shift >= 0 along each of height and width.
    """

    shape: Sequence[int]
    pixels: int

    def __post_init__(self) -> None:
        if len(self.shape) < 2:
            raise _validate.refuse("views.transform.shape", list(self.shape), "[…, height, width]")
        _validate.integer("views.transform.pixels", self.pixels, at_least=0)

    def __call__(self, example: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Shape (count, …).

        Raises:
            UserError: The example is no image of this shape.
        """
        if example.numel() != prod(self.shape):
            hint = f"An example has {example.numel()} values (after features, which must be none)."
            raise _validate.refuse("views.transform.shape", list(self.shape), "the shape of an image", hint)
        height, width = self.shape[-2:]
        reach = self.pixels
        padded = torch.nn.functional.pad(example.reshape(*self.shape), (reach,) * 4)
        corners = torch.randint(2 * reach + 1, (count, 2), generator=generator).tolist()
        moved = [padded[..., top : top + height, left : left + width] for top, left in corners]
        return torch.stack(moved).view(count, *example.shape)
