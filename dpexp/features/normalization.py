"""Normalization of channels: by example (free), or by noisy statistics of the data (charged)."""

import math
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

__all__ = [
    "EPSILON",
    "ChannelScale",
    "GroupNormalization",
    "PrivateNormalization",
    "moments_of_channels",
    "normalized_by_group",
]

EPSILON = 1e-5  # as in torch's group norm
_LEAST_VARIANCE = 1e-3  # of the mean over channels, so that noise in a small one is not blown up
_CHUNK = 4096  # rows at once: bounds the float64 copies


@final
@dataclass(frozen=True, kw_only=True)
class GroupNormalization:
    """Each example's groups of channels get mean 0 and variance 1 (Wu and He, 2018), without parameters.

    It looks at one row at a time, so it releases nothing.

    Attributes:
        inputs: Values per row, as many for each channel, channel by channel.
        dimensions: As many.
        channels: K.
        groups: G in 1 … K, a divisor of K. Tramèr and Boneh (2021, section 2.2) try 9, 27 and 81.
    """

    inputs: int
    dimensions: int
    channels: int
    groups: int | None

    def __post_init__(self) -> None:
        _check_channels(self.inputs, self.dimensions, self.channels)
        groups = _validate.integer("features.groups", self.groups, at_least=1)
        if self.channels % groups:
            raise _validate.refuse("features.groups", groups, f"a divisor of the {self.channels} channels")

    @property
    def releases(self) -> tuple[Release, ...]:
        """Nothing."""
        return ()

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """Nothing."""
        return {}

    def fit(self, inputs: Inputs, noise: Noise) -> "GroupNormalization":
        """Itself: there is nothing to fit."""
        return self

    @property
    def nonprivate(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def transform(self, inputs: Inputs) -> Inputs:
        """Normalized rows, shape (N, d)."""
        assert self.groups is not None
        return normalized_by_group(check_width(inputs, self.inputs), self.groups)

    def as_layer(self) -> "nn.Module":
        """The same in torch."""
        from dpexp.features.layers import GroupNorm

        assert self.groups is not None
        return GroupNorm(self.groups, EPSILON)

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}


def normalized_by_group(rows: Inputs, groups: int) -> Inputs:
    """Rows (N, d) with mean 0 and variance 1 in each of `groups` equal parts."""
    result = np.empty_like(rows)
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK].reshape(-1, groups, rows.shape[1] // groups)
        centered = part - part.mean(axis=2, keepdims=True)
        variance = np.square(centered).mean(axis=2, keepdims=True)
        result[start : start + _CHUNK] = (centered / np.sqrt(variance + EPSILON)).reshape(-1, rows.shape[1])
    return result


@final
@dataclass(frozen=True, kw_only=True)
class ChannelScale:
    """Subtracts each channel's mean and divides by its standard deviation, shapes (K,)."""

    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """Both."""
        return {"mean": self.mean, "std": self.std}

    @property
    def nonprivate(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def transform(self, inputs: Inputs) -> Inputs:
        """Normalized rows, shape (N, d)."""
        result = np.empty((len(inputs), math.prod(inputs.shape[1:])), dtype=np.float32)
        for start in range(0, len(inputs), _CHUNK):
            part = inputs[start : start + _CHUNK].reshape(
                -1, len(self.mean), result.shape[1] // len(self.mean)
            )
            scaled = (part - self.mean[:, None]) / self.std[:, None]
            result[start : start + _CHUNK] = scaled.reshape(-1, result.shape[1])
        return result

    def as_layer(self) -> "nn.Module":
        """The same in torch."""
        from dpexp.features.layers import Standardization

        return Standardization(self.mean, self.std)


@final
@dataclass(frozen=True, kw_only=True)
class PrivateNormalization:
    """Normalizes channels by their noisy mean and variance over the training rows.

    After Tramèr and Boneh (2021), arXiv 2011.11660, section 2.2: each example gives the vector of its
    channels' means m and mean squares s, clipped to L2 norms `mean_bound` and `square_bound`. Theirs are
    two releases; here the two vectors, each divided by its bound and by √2, are one.

    *Formal guarantees.* An example's part of the released sum has norm at most 1, so adding or removing it
    moves the sum by at most 1. Replacing it moves the half that holds m by at most 2/√2, and the half that
    holds s, which is not negative, by at most √2/√2: together by √3. Noise of std σ makes it one Gaussian
    release with q = 1. Means are sums divided by the declared N: post-processing.

    Attributes:
        inputs: Values per row, as many for each channel, channel by channel.
        dimensions: As many.
        channels: K.
        noise_multiplier: σ > 0.
        mean_bound: > 0.
        square_bound: > 0.
        num_examples: N, declared and public.
    """

    inputs: int
    dimensions: int
    channels: int
    noise_multiplier: float | None
    mean_bound: float | None
    square_bound: float | None
    num_examples: int | None

    def __post_init__(self) -> None:
        _check_channels(self.inputs, self.dimensions, self.channels)
        hint = "features.normalization=group needs no noise."
        _validate.number("features.noise_multiplier", self.noise_multiplier, above=0, hint=hint)
        _validate.number("features.mean_bound", self.mean_bound, at_least=1e-9)
        _validate.number("features.square_bound", self.square_bound, at_least=1e-9)
        _validate.integer("features.num_examples", self.num_examples, at_least=1)

    @property
    def releases(self) -> tuple[Release, ...]:
        """One Gaussian release over all training rows."""
        assert self.noise_multiplier is not None
        event = Gaussian(noise_multiplier=self.noise_multiplier, replace_one_factor=math.sqrt(3))
        return (Release("private_normalization", event),)

    def fit(self, inputs: Inputs, noise: Noise) -> ChannelScale:
        """The normalization for training rows of shape `(N, d)`; draws noise once, at position 0."""
        assert self.num_examples is not None
        rows = check_width(inputs, self.inputs)
        total = moments_of_channels(rows, self.channels, *self._bounds)
        noisy = noised(
            total,
            noise.standard_normal(0, total.size),
            noise_std=self._sigma,  # the sensitivity is 1
            noise_multiplier=self._sigma,
            spacing=noise.spacing,
        )
        mean_bound, square_bound = self._bounds
        means, squares = np.split(noisy * math.sqrt(2) / self.num_examples, 2)
        mean = means * mean_bound
        variance = squares * square_bound - mean**2
        unknown = self._sigma * math.sqrt(2) * square_bound / self.num_examples  # the noise's own size
        least = max(_LEAST_VARIANCE * float(np.mean(variance)), unknown)
        std = np.sqrt(np.maximum(variance, least))
        return ChannelScale(mean=mean.astype(np.float32), std=std.astype(np.float32))

    def arrays(self, fitted: ChannelScale) -> Mapping[str, NDArray[Any]]:
        """Means and standard deviations."""
        return fitted.state

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> ChannelScale:
        """The normalization by statistics that were released before.

        Raises:
            UserError: They are those of other channels.
        """
        mean, std = (arrays.get(name, np.empty(0, np.float32)) for name in ("mean", "std"))
        if mean.shape != (self.channels,) or std.shape != (self.channels,):
            expected = f"one mean and one std for each of the {self.channels} channels"
            raise _validate.refuse("features.normalization", (mean.shape, std.shape), expected)
        return ChannelScale(mean=mean, std=std)

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @property
    def _sigma(self) -> float:
        assert self.noise_multiplier is not None
        return self.noise_multiplier

    @property
    def _bounds(self) -> tuple[float, float]:
        assert self.mean_bound is not None
        assert self.square_bound is not None
        return self.mean_bound, self.square_bound


def moments_of_channels(
    rows: Inputs, channels: int, mean_bound: float, square_bound: float
) -> NDArray[np.float64]:
    """Σ over examples of [m/mean_bound, s/square_bound]/√2, each half clipped to norm 1 before, shape (2K,).

    Args:
        rows: Shape (N, d); a row that is not finite counts as zero.
        channels: K.
        mean_bound: On the norm of the channel means m.
        square_bound: On the norm of the channel mean squares s.
    """
    total = np.zeros(2 * channels)
    for start in range(0, len(rows), _CHUNK):
        part = (
            rows[start : start + _CHUNK].astype(np.float64).reshape(-1, channels, rows.shape[1] // channels)
        )
        part = np.where(np.isfinite(part).all(axis=(1, 2), keepdims=True), part, 0.0)
        means = _clipped(part.mean(axis=2) / mean_bound)
        squares = _clipped(np.square(part).mean(axis=2) / square_bound)
        total += np.concatenate([means.sum(axis=0), squares.sum(axis=0)])
    return total / math.sqrt(2)


def _clipped(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1.0)  # so that no square overflows
    norms = largest * np.linalg.norm(vectors / largest, axis=1, keepdims=True)
    clipped: NDArray[np.float64] = vectors / np.maximum(norms * (1 + 1e-12), 1.0)
    return clipped


def _check_channels(inputs: int, dimensions: int, channels: int) -> None:
    check_dimensions(dimensions, inputs, f"features.inputs = {inputs}")
    _validate.integer("features.channels", channels, at_least=1)
    if inputs % channels:
        raise _validate.refuse("features.channels", channels, f"a divisor of features.inputs = {inputs}")
