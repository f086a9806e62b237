"""The leading directions of the rows, found privately and scaled down: charged, cheap where rows are many."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Gaussian, Release
from dpexp.features.dp_pca import noisy_second_moment, second_moment
from dpexp.features.features import Inputs, check_dimensions, check_width
from dpexp.noise import Noise

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PrivateWhitening", "Whitening", "leading"]

_log = logging.getLogger(__name__)  # what it says is a function of the release

_CHUNK = 4096  # rows at once: bounds the copies


@final
@dataclass(frozen=True, kw_only=True)
class Whitening:
    """Scales some directions and leaves what is orthogonal to them.

    Attributes:
        directions: V, shape (d, k); orthonormal columns.
        scales: s in (0, 1], shape (k,).
    """

    directions: NDArray[np.float32]
    scales: NDArray[np.float32]

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """Directions and scales."""
        return {"directions": self.directions, "scales": self.scales}

    @property
    def nonprivate(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def transform(self, inputs: Inputs) -> Inputs:
        """Rows (N, *shape) of d values to x - V (1-s) Vᵀx, shape (N, d)."""
        result = np.empty((len(inputs), len(self.directions)), dtype=np.float32)
        excess = (self.directions * (1 - self.scales)).T
        for start in range(0, len(inputs), _CHUNK):
            rows = inputs[start : start + _CHUNK].reshape(-1, len(self.directions))
            np.subtract(rows, rows @ self.directions @ excess, out=result[start : start + _CHUNK])
        return result

    def as_layer(self) -> "nn.Module":
        """The same in torch."""
        from dpexp.features.layers import Rescaling

        return Rescaling(self.directions, self.scales)


@final
@dataclass(frozen=True, kw_only=True)
class PrivateWhitening:
    """Scales the leading directions of a noisy second-moment matrix of the training rows down.

    A clipped gradient of a linear model is as long in a direction as the row is. Where a few directions hold
    most of every row, they take up most of C, and training is slow in all others. Mehta et al. (2023)
    precondition by the covariance of features, released privately; here only what stands out of the release's
    noise is scaled, as rows are few for a matrix of d² entries. Center the rows first.

    Noise of std σ_p, symmetrized, has eigenvalues up to ±2h with h = σ_p √(d/2). One of λ > h shows as
    λ + h²/λ, in a direction whose squared cosine with the true one is 1 - h²/λ² (Benaych-Georges and
    Nadakuditi 2011). With ρ = λ - h²/λ, what that direction truly holds, its scale is √(h/(h + ρ)), which
    falls from 1 at h. All this is for large d: of small matrices of noise alone, an eigenvalue may pass 2h.

    *Formal guarantees.* That of `DPPCA`: one Gaussian release of the second moment of rows scaled to unit
    norm, moved by at most 1 by a row that is added or removed and by √2 by one that is replaced. All else
    is post-processing.

    Attributes:
        inputs: d, values per row.
        dimensions: As many.
        noise_multiplier: σ_p > 0, std of the noise on each entry.

    References:
        Mehta, Thakurta, Kurakin and Cutkosky (2023), Towards large scale transfer learning for differentially
        private image classification, TMLR, arXiv 2211.13403.
        Benaych-Georges and Nadakuditi (2011), The eigenvalues and eigenvectors of finite, low rank
        perturbations of large random matrices, Adv. Math. 227(1), section 3.1.
    """

    inputs: int
    dimensions: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_dimensions(self.dimensions, self.inputs, f"features.inputs = {self.inputs}")
        _validate.number("features.noise_multiplier", self.noise_multiplier, above=0)

    @property
    def releases(self) -> tuple[Release, ...]:
        """One Gaussian release over all training rows."""
        event = Gaussian(noise_multiplier=self.noise_multiplier, replace_one_factor=math.sqrt(2))
        return (Release("second_moment", event),)

    def fit(self, inputs: Inputs, noise: Noise) -> Whitening:
        """The whitening for training rows of shape `(N, d)`; draws noise once, at position 0."""
        moment = second_moment(check_width(inputs, self.inputs))
        found = leading(noisy_second_moment(moment, self.noise_multiplier, noise), self.noise_multiplier)
        _log.info(
            "Whitening scales %d of %d directions; the others do not stand out of its noise of std %g.",
            len(found.scales),
            self.inputs,
            self.noise_multiplier,
        )
        return found

    def arrays(self, fitted: Whitening) -> Mapping[str, NDArray[Any]]:
        """Directions and scales."""
        return fitted.state

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> Whitening:
        """The whitening that was released before.

        Raises:
            UserError: It is that of other rows.
        """
        directions = arrays.get("directions", np.empty((0, 0), np.float32))
        scales = arrays.get("scales", np.empty((0, 0), np.float32))
        if directions.shape != (self.inputs, *scales.shape):
            found = f"directions {directions.shape} and scales {scales.shape}"
            raise _validate.refuse("features.inputs", found, f"({self.inputs}, k) and (k,)")
        return Whitening(directions=directions, scales=scales)

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}


def leading(noisy: NDArray[np.float64], noise_multiplier: float) -> Whitening:
    """The whitening of what stands out of the noise in a symmetric matrix (d, d), which is overwritten."""
    half = noise_multiplier * math.sqrt(len(noisy) / 2)
    found, vectors = scipy.linalg.eigh(noisy, subset_by_value=(2 * half, np.inf), overwrite_a=True)
    true = (found + np.sqrt(found**2 - (2 * half) ** 2)) / 2
    beyond = true - half**2 / true
    scales = np.sqrt(half / (half + beyond))
    return Whitening(directions=vectors.astype(np.float32), scales=scales.astype(np.float32))
