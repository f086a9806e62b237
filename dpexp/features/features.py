"""What turns pixels into the features that are trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.noise import Noise

__all__ = ["Features", "FittedFeatures", "Inputs", "KeepsFitted", "NoFeatures"]

Inputs = NDArray[np.float32]


class FittedFeatures(Protocol):
    """A fixed map, applied to training and evaluation rows alike."""

    def transform(self, inputs: Inputs) -> Inputs:
        """Features of rows, shape (N, *shape) to (N, dimensions)."""
        ...


@runtime_checkable
class Features(Protocol):
    """The `features` config group. What `fit` computes from private rows is charged beforehand."""

    @property
    def dimensions(self) -> int:
        """Values per row that come out."""
        ...

    @property
    def releases(self) -> tuple[Release, ...]:
        """What `fit` releases, with private noise."""
        ...

    def fit(self, inputs: Inputs, noise: Noise) -> FittedFeatures:
        """Fits to the training rows; `noise` is what makes the releases true."""
        ...

    def ignored(self) -> dict[str, Any]:
        """Keys that were set and have no effect."""
        ...


@runtime_checkable
class KeepsFitted(Protocol):
    """Features whose fitted map can be kept with a run, so that resuming it releases nothing anew.

    Features that release something and do not keep it are fitted, and charged, again.
    """

    def arrays(self, fitted: Any) -> Mapping[str, NDArray[Any]]:
        """What the fitted map is made of; released values only."""
        ...

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> FittedFeatures:
        """The fitted map, of what `arrays` gave.

        Raises:
            UserError: They belong to other features.
        """
        ...


@final
@dataclass(frozen=True, kw_only=True)
class NoFeatures:
    """The rows as they are. Takes the keys of the other features, so that it can follow any experiment."""

    inputs: int
    dimensions: int
    components: Any = None
    noise_multiplier: Any = None

    def __post_init__(self) -> None:
        if self.dimensions != self.inputs:
            raise _validate.refuse("features.dimensions", self.dimensions, f"features.inputs = {self.inputs}")

    @property
    def releases(self) -> tuple[Release, ...]:
        """Nothing."""
        return ()

    def fit(self, inputs: Inputs, noise: Noise) -> "NoFeatures":
        """Itself: there is nothing to fit."""
        return self

    def transform(self, inputs: Inputs) -> Inputs:
        """The rows, unchanged."""
        return inputs

    def ignored(self) -> dict[str, Any]:
        """The keys of other features."""
        set_here = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("inputs", "dimensions")
        }
        return {name: value for name, value in set_here.items() if value is not None}
