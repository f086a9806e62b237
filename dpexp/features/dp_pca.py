"""Differentially private principal components (Abadi et al., 2016, arXiv 1607.00133v2, section 4)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from dpexp import _validate
from dpexp.accounting import Gaussian, Release
from dpexp.features.features import Inputs, check_width
from dpexp.noise import Noise, noised

if TYPE_CHECKING:
    from torch import nn

__all__ = ["DPPCA", "Projection", "noisy_second_moment", "second_moment"]

_CHUNK = 8192  # rows at once: bounds the float64 copies


@final
@dataclass(frozen=True)
class Projection:
    """Fixed directions.

    Attributes:
        directions: Shape (d, k); orthonormal columns, or of one common length.
        explained_variance: Share of the unit rows' second moment in the span of the directions. Not released;
            None where it was not computed.
    """

    directions: NDArray[np.float32]
    explained_variance: float | None = None

    @property
    def nonprivate(self) -> dict[str, float]:
        """The explained variance, which no noise covers."""
        return {} if self.explained_variance is None else {"explained_variance": self.explained_variance}

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """The directions."""
        return {"directions": self.directions}

    def transform(self, inputs: Inputs) -> Inputs:
        """Projects rows (N, *shape) with d values each to (N, k)."""
        return inputs.reshape(len(inputs), -1) @ self.directions

    def as_layer(self) -> "nn.Module":
        """The projection in torch; without the explained variance, which is not released."""
        from dpexp.features.layers import Directions

        return Directions(self.directions)


@final
@dataclass(frozen=True, kw_only=True)
class DPPCA:
    """Projects onto the top directions of a noisy second-moment matrix of the training rows.

    Rows are scaled to unit norm inside the second moment only; what is projected is the row itself.

    *Formal guarantees.* Adding or removing a row changes AᵀA by vvᵀ with ‖v‖ <= 1: Frobenius norm at most
    1. Replacing one changes it by at most √2. The noise of std σ_p on all d² entries makes it one
    Gaussian release with q = 1; symmetrizing and taking directions is post-processing.

    Attributes:
        inputs: d, values per row.
        components: k in [1, d], directions kept.
        dimensions: Values per row that come out: k.
        noise_multiplier: σ_p > 0, std of the noise on each entry.
    """

    inputs: int
    components: int
    dimensions: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        components = _validate.integer("features.components", self.components, at_least=1)
        _validate.number("features.components", self.components, at_most=self.inputs)
        if self.dimensions != self.components:
            raise _validate.refuse(
                "features.dimensions", self.dimensions, f"features.components = {self.components}"
            )
        object.__setattr__(self, "components", components)
        hint = "Use features=none, or privacy=none for an exact PCA."
        _validate.number("features.noise_multiplier", self.noise_multiplier, above=0, hint=hint)

    @property
    def releases(self) -> tuple[Release, ...]:
        """One Gaussian release over all training rows."""
        event = Gaussian(noise_multiplier=self.noise_multiplier, replace_one_factor=math.sqrt(2))
        return (Release("dp_pca", event),)

    def fit(self, inputs: Inputs, noise: Noise) -> Projection:
        """The projection for training rows of shape `(N, *shape)`; draws noise once, at position 0."""
        rows = check_width(inputs, self.inputs)
        exact = second_moment(rows)
        _, vectors = np.linalg.eigh(noisy_second_moment(exact, self.noise_multiplier, noise))  # ascending
        top = vectors[:, : -self.components - 1 : -1]
        explained = float(np.sum(top * (exact @ top)) / max(np.trace(exact), np.finfo(np.float64).tiny))
        return Projection(np.ascontiguousarray(top, dtype=np.float32), explained_variance=explained)

    def arrays(self, fitted: Projection) -> Mapping[str, NDArray[Any]]:
        """The directions."""
        return {"directions": fitted.directions}

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> Projection:
        """The projection onto directions that were released before."""
        directions = arrays.get("directions", np.empty((0, 0), np.float32))
        expected = (self.inputs, self.components)
        if directions.shape != expected:
            raise _validate.refuse("features.components", directions.shape, f"directions of shape {expected}")
        return Projection(directions)

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}


def second_moment(rows: Inputs) -> NDArray[np.float64]:
    """AᵀA with each row of A scaled to norm <= 1, shape (N, d) to (d, d); non-finite rows count as zero."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in track(range(0, len(rows), _CHUNK), "second moment of the rows", transient=True):
        unit = _unit_rows(rows[start : start + _CHUNK].astype(np.float64))
        total += unit.T @ unit
    return total


def noisy_second_moment(
    moment: NDArray[np.float64], noise_multiplier: float, noise: Noise
) -> NDArray[np.float64]:
    """Adds N(0, σ_p²) to every entry and symmetrizes: diagonal std σ_p, off the diagonal σ_p/√2."""
    draws = noise.standard_normal(0, moment.size)
    noisy = noised(
        moment.ravel(),
        draws,
        noise_std=noise_multiplier,  # the sensitivity is 1
        noise_multiplier=noise_multiplier,
        spacing=noise.spacing,
    ).reshape(moment.shape)
    return (noisy + noisy.T) / 2


def _unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    # Scaled by the largest entry first, so that neither huge nor tiny rows over- or underflow.
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float64] = rows / np.maximum(norms * (1 + 1e-12), np.finfo(np.float64).tiny)
    return unit
