"""A public random projection."""

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.features.dp_pca import Projection
from dpexp.features.features import Inputs
from dpexp.noise import Noise

__all__ = ["RandomProjection"]


@final
@dataclass(frozen=True, kw_only=True)
class RandomProjection:
    """Projects onto random directions drawn from a public key: it depends on no row and releases nothing.

    The directions are orthonormal, √(d/k) long together, so that a row keeps its squared length on average
    (Johnson and Lindenstrauss, 1984).

    Attributes:
        inputs: d, values per row.
        components: k in [1, d].
        dimensions: Values per row that come out: k.
        key: Public number >= 0 that the directions are drawn from; another key, other directions.
    """

    inputs: int
    components: int
    dimensions: int
    key: int

    def __post_init__(self) -> None:
        components = _validate.integer("features.components", self.components, at_least=1)
        _validate.number("features.components", self.components, at_most=self.inputs)
        _validate.integer("features.key", self.key, at_least=0)
        if self.dimensions != components:
            raise _validate.refuse(
                "features.dimensions", self.dimensions, f"features.components = {components}"
            )

    @property
    def releases(self) -> tuple[Release, ...]:
        """Nothing."""
        return ()

    def fit(self, inputs: Inputs, noise: Noise) -> Projection:
        """The projection; neither rows nor noise are looked at."""
        draws = np.random.default_rng(self.key).standard_normal((self.inputs, self.components))
        orthonormal, triangular = np.linalg.qr(draws)
        directions = orthonormal * np.sign(np.diag(triangular)) * math.sqrt(self.inputs / self.components)
        return Projection(np.ascontiguousarray(directions, dtype=np.float32))

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}
