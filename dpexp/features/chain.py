"""Features of features."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.features.features import Features, FittedFeatures, Inputs, TakesPublic, check_dimensions
from dpexp.noise import Noise, NoNoise

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Chain", "FittedChain"]


@final
@dataclass(frozen=True)
class FittedChain:
    """Fitted stages, each applied to what comes out of the one before."""

    stages: tuple[FittedFeatures, ...]

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """What was fitted, by the number of the stage and its name."""
        return {
            f"{index}.{name}": value
            for index, stage in enumerate(self.stages)
            for name, value in stage.state.items()
        }

    @property
    def nonprivate(self) -> dict[str, float]:
        """Those of all stages."""
        return {name: value for stage in self.stages for name, value in stage.nonprivate.items()}

    def transform(self, inputs: Inputs) -> Inputs:
        """Features of rows, shape (N, *shape) to (N, dimensions)."""
        for stage in self.stages:
            inputs = stage.transform(inputs)
        return inputs

    def as_layer(self) -> "nn.Module":
        """The stages in torch, one after another."""
        from torch import nn

        return nn.Sequential(*(stage.as_layer() for stage in self.stages))


def of_stage(index: int, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Those of a `FittedChain`'s state that one stage fitted, by the names that it gave them."""
    prefix = f"{index}."
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def restored_stage(stage: Any, arrays: Mapping[str, NDArray[Any]]) -> FittedFeatures:
    """A stage as it was fitted before; one that releases nothing is fitted anew, without looking at rows."""
    no_rows = np.empty((0, 0), dtype=np.float32)
    fitted: FittedFeatures = stage.restored(arrays) if stage.releases else stage.fit(no_rows, NoNoise())
    return fitted


@final
@dataclass(frozen=True)
class _Apart:
    """Another's noise for one of several stages: their draws must not be the same."""

    noise: Noise
    stage: int
    stages: int

    @property
    def spacing(self) -> float:
        """As the other's."""
        return self.noise.spacing

    def standard_normal(self, position: int, size: int) -> NDArray[np.float64]:
        """Draws at positions that no other stage uses."""
        return self.noise.standard_normal(position * self.stages + self.stage, size)


@final
@dataclass(frozen=True, kw_only=True)
class Chain:
    """Features applied one after another; each is fitted to what comes out of those before it.

    *Formal guarantees.* All that stages release is released, and charged, with noise of its own. Whatever
    comes before a stage is either public or made from releases already charged, so that it is fixed when
    the stage is fitted, and the stage's sensitivity holds for the rows as it sees them.

    Attributes:
        inputs: Values per row that go in.
        dimensions: Values per row that come out.
        stages: By name, in order; an entry that is null is left out.
    """

    inputs: int
    dimensions: int
    stages: Mapping[str, Features | None]

    def __post_init__(self) -> None:
        if not isinstance(self.stages, Mapping) or not self._stages:
            raise _validate.refuse("features.stages", self.stages, "names with features, at least one")
        width = self.inputs
        for name, stage in self._stages.items():
            if not isinstance(stage, Features):
                raise _validate.refuse(f"features.stages.{name}", stage, "features, made by a _target_")
            takes = getattr(stage, "inputs", width)
            if takes != width:
                expected = f"{width}, the values that come in"
                raise _validate.refuse(f"features.stages.{name}.inputs", takes, expected)
            width = stage.dimensions
        check_dimensions(self.dimensions, width, f"{width}, what comes out of the last stage")

    @property
    def releases(self) -> tuple[Release, ...]:
        """Those of all stages, in order, named by stage."""
        return tuple(
            replace(release, name=f"{name}_{release.name}")
            for name, stage in self._stages.items()
            for release in stage.releases
        )

    @property
    def declared_public(self) -> tuple[str, ...]:
        """What any stage was made from."""
        public = (stage for stage in self._stages.values() if isinstance(stage, TakesPublic))
        return tuple(words for stage in public for words in stage.declared_public)

    def fit(self, inputs: Inputs, noise: Noise) -> FittedFeatures:
        """Fits the stages in order. Rows are transformed only as far as a stage is fitted to them."""
        fitted: list[FittedFeatures] = []
        seen = 0  # how many stages `inputs` has been through
        stages = list(self._stages.values())
        for index, stage in enumerate(stages):
            if stage.releases:
                inputs = FittedChain(tuple(fitted[seen:])).transform(inputs)
                seen = index
            fitted.append(stage.fit(inputs, _Apart(noise, index, len(stages))))
        return FittedChain(tuple(fitted))

    def arrays(self, fitted: FittedFeatures) -> Mapping[str, NDArray[Any]]:
        """What was fitted, by stage."""
        return fitted.state

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> FittedFeatures:
        """The fitted stages, of what was released before; public ones are made anew.

        Raises:
            UserError: They belong to other features.
        """
        return FittedChain(
            tuple(
                restored_stage(stage, of_stage(index, arrays))
                for index, stage in enumerate(self._stages.values())
            )
        )

    def ignored(self) -> dict[str, Any]:
        """The stages' ignored keys."""
        return dict(
            itertools.chain.from_iterable(
                ((f"stages.{name}.{key}", value) for key, value in stage.ignored().items())
                for name, stage in self._stages.items()
            )
        )

    @property
    def _stages(self) -> dict[str, Features]:
        return {name: stage for name, stage in self.stages.items() if stage is not None}
