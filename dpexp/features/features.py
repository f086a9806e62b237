"""What turns pixels into the features that are trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.noise import Noise

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Features",
    "FittedFeatures",
    "Inputs",
    "KeepsFitted",
    "NoFeatures",
    "TakesPublic",
    "TakesTokens",
    "check_dimensions",
    "check_width",
]

Inputs = NDArray[np.float32]


class FittedFeatures(Protocol):
    """A fixed map, applied to training and evaluation rows alike."""

    @property
    def state(self) -> Mapping[str, NDArray[np.float32]]:
        """What was fitted, by name: all that a prediction needs beside the configuration."""
        ...

    @property
    def nonprivate(self) -> Mapping[str, float]:
        """Figures of the private rows that the guarantee does not cover, by name."""
        ...

    def transform(self, inputs: Inputs) -> Inputs:
        """Features of rows, shape (N, *shape) to (N, dimensions)."""
        ...

    def as_layer(self) -> "nn.Module":
        """The same map in torch, for the model that predicts on raw rows; it holds what `state` does."""
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
        """What `fit` releases, with private noise; where there are none, `fit` does not look at the rows."""
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


@runtime_checkable
class TakesPublic(Protocol):
    """Features made from data that the user declares public: the statement says so."""

    @property
    def declared_public(self) -> tuple[str, ...]:
        """What was made from which data, in words; one entry for each."""
        ...


@runtime_checkable
class TakesTokens(Protocol):
    """Features of rows of token ids; all others are computed from values."""

    @property
    def vocabulary(self) -> int:
        """Number of token ids, the same as that of the data set."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class NoFeatures:
    """The rows as they are. Takes the keys of the other features, so that it can follow any experiment."""

    inputs: int
    dimensions: int
    components: Any = None
    noise_multiplier: Any = None
    shape: Any = None
    scales: Any = None
    angles: Any = None
    normalization: Any = None
    groups: Any = None
    mean_bound: Any = None
    square_bound: Any = None
    num_examples: Any = None
    key: Any = None
    stages: Any = None
    crop: Any = None
    channels: Any = None
    public: Any = None
    private: Any = None
    epochs: Any = None
    lr: Any = None
    cache: Any = None
    size: Any = None
    weights: Any = None

    def __post_init__(self) -> None:
        check_dimensions(self.dimensions, self.inputs, f"features.inputs = {self.inputs}")

    @property
    def releases(self) -> tuple[Release, ...]:
        """Nothing."""
        return ()

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """Nothing."""
        return {}

    @property
    def nonprivate(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def fit(self, inputs: Inputs, noise: Noise) -> "NoFeatures":
        """Itself: there is nothing to fit."""
        return self

    def transform(self, inputs: Inputs) -> Inputs:
        """The rows, unchanged."""
        return inputs

    def as_layer(self) -> "nn.Module":
        """The rows, unchanged."""
        from torch import nn

        return nn.Identity()

    def ignored(self) -> dict[str, Any]:
        """The keys of other features."""
        set_here = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("inputs", "dimensions")
        }
        return {name: value for name, value in set_here.items() if value is not None}


def check_dimensions(found: int, values: int, expected: str) -> None:
    """Refuses a declared width of what comes out that is not what comes out."""
    if found != values:
        raise _validate.refuse("features.dimensions", found, expected)


def check_width(inputs: Inputs, declared: int) -> Inputs:
    """Rows as vectors, shape (N, *shape) to (N, d); refuses another d than declared."""
    rows = inputs.reshape(len(inputs), -1)
    if rows.shape[1] != declared:
        raise _validate.refuse("features.inputs", declared, f"{rows.shape[1]}, as in the rows")
    return rows
