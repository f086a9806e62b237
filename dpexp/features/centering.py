"""The noisy mean of the rows, subtracted from each: charged, and cheap where rows are many."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Gaussian, Release
from dpexp.features.features import Inputs, check_dimensions, check_width
from dpexp.noise import Noise, noised

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Center", "PrivateCentering", "sum_of_clipped"]

_CHUNK = 4096  # rows at once: bounds the float64 copies


@final
@dataclass(frozen=True, kw_only=True)
class Center:
    """Subtracts a fixed mean, shape (d,)."""

    mean: NDArray[np.float32]

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """The mean."""
        return {"mean": self.mean}

    @property
    def nonprivate(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def transform(self, inputs: Inputs) -> Inputs:
        """Centered rows, shape (N, d)."""
        result = np.empty((len(inputs), len(self.mean)), dtype=np.float32)
        for start in range(0, len(inputs), _CHUNK):
            part = inputs[start : start + _CHUNK]
            np.subtract(part.reshape(len(part), -1), self.mean, out=result[start : start + _CHUNK])
        return result

    def as_layer(self) -> "nn.Module":
        """The same in torch."""
        from dpexp.features.layers import Standardization

        return Standardization(self.mean, np.ones_like(self.mean))


@final
@dataclass(frozen=True, kw_only=True)
class PrivateCentering:
    """Subtracts the noisy mean of the training rows, each clipped to norm `bound` for it.

    What rows have in common takes up most of a clipped gradient and tells no classes apart. The mean of N
    rows needs little noise: at σ its error has norm σ·bound·√d/N.

    *Formal guarantees.* A row's part of Σ x/bound has norm at most 1: adding or removing it moves the sum by
    at most 1, replacing it by at most 2. Noise of std σ makes it one Gaussian release with q = 1. Multiplying
    by bound/N, with N declared, is post-processing.

    Attributes:
        inputs: d, values per row.
        dimensions: As many.
        noise_multiplier: σ > 0.
        bound: > 0, L2 norm that a row has at most, or is clipped to. Group normalization gives at most √d.
        num_examples: N, declared and public.
    """

    inputs: int
    dimensions: int
    noise_multiplier: float
    bound: float
    num_examples: int

    def __post_init__(self) -> None:
        check_dimensions(self.dimensions, self.inputs, f"features.inputs = {self.inputs}")
        _validate.number("features.noise_multiplier", self.noise_multiplier, above=0)
        _validate.number("features.bound", self.bound, at_least=1e-9)
        _validate.integer("features.num_examples", self.num_examples, at_least=1)

    @property
    def releases(self) -> tuple[Release, ...]:
        """One Gaussian release over all training rows."""
        return (Release("private_mean", Gaussian(noise_multiplier=self.noise_multiplier)),)

    def fit(self, inputs: Inputs, noise: Noise) -> Center:
        """The mean of training rows of shape `(N, d)`; draws noise once, at position 0."""
        total = sum_of_clipped(check_width(inputs, self.inputs), self.bound)
        noisy = noised(
            total,
            noise.standard_normal(0, total.size),
            noise_std=self.noise_multiplier,  # the sensitivity is 1
            noise_multiplier=self.noise_multiplier,
            spacing=noise.spacing,
        )
        return Center(mean=(noisy * self.bound / self.num_examples).astype(np.float32))

    def arrays(self, fitted: Center) -> Mapping[str, NDArray[Any]]:
        """The mean."""
        return fitted.state

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> Center:
        """The centering by a mean that was released before.

        Raises:
            UserError: It is that of other rows.
        """
        mean = arrays.get("mean", np.empty(0, np.float32))
        if mean.shape != (self.inputs,):
            raise _validate.refuse("features.inputs", mean.shape, f"a mean of shape ({self.inputs},)")
        return Center(mean=mean)

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}


def sum_of_clipped(rows: Inputs, bound: float) -> NDArray[np.float64]:
    """Σ x/bound, each x clipped to norm `bound`, shape (N, d) to (d,); non-finite rows count as zero."""
    total = np.zeros(rows.shape[1])
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK].astype(np.float64)
        part = np.where(np.isfinite(part).all(axis=1, keepdims=True), part, 0.0) / bound
        norms = np.linalg.norm(part, axis=1, keepdims=True)  # float32 values: no square overflows
        total += (part / np.maximum(norms * (1 + 1e-12), 1.0)).sum(axis=0)
    return total
