"""Scattering features: a fixed, public bank of wavelets, and a normalization of its channels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.features.cache import FeatureCache
from dpexp.features.chain import FittedChain, of_stage
from dpexp.features.features import FittedFeatures, Inputs, check_dimensions
from dpexp.features.images import ImageShape, scattering_dimensions, scattering_paths
from dpexp.features.normalization import EPSILON, GroupNormalization, PrivateNormalization
from dpexp.features.public_map import PublicMap
from dpexp.noise import Noise

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Scattering"]

_NORMALIZATIONS = ("none", "group", "data")


@final
@dataclass(frozen=True, kw_only=True)
class Scattering:
    """The scattering transform of images up to order 2 (Bruna and Mallat, 2013), as features for DP-SGD.

    Tramèr and Boneh (2021), arXiv 2011.11660, section 2, train linear models on it. Images of 28×28 pixels
    give 81 channels of 7×7 values at J = 2, L = 8.

    *Formal guarantees.* The transform and its normalization by example or `group` depend on no other row
    and release nothing. Under `data` the channels' means and variances over the training rows are
    released once: `PrivateNormalization`.

    Attributes:
        inputs: Values per row.
        shape: Of the images that a row holds: [height, width] or [channels, height, width].
        scales: J in 1 … with 2^J below height and width: averages are over about 2^J pixels.
        angles: L >= 1, directions of the wavelets.
        dimensions: Values per row that come out.
        normalization: `none`, `group` or `data`.
        groups: Under `group`, how many groups the channels are split into; it divides their number.
        noise_multiplier: Under `data`, σ > 0 of the release.
        mean_bound: Under `data`, L2 bound on one example's vector of channel means.
        square_bound: Under `data`, L2 bound on one example's vector of channel mean squares.
        num_examples: Under `data`, N, declared and public.
        cache: Whether to keep the features before any `data` normalization in the user's cache.
    """

    inputs: int
    shape: Any
    scales: int
    angles: int
    dimensions: int
    normalization: str
    groups: int | None = None
    noise_multiplier: float | None = None
    mean_bound: float | None = None
    square_bound: float | None = None
    num_examples: int | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        image = ImageShape.of("features.shape", self.shape)
        if image.values != self.inputs:
            raise _validate.refuse(
                "features.shape", self.shape, f"a shape of data.dimensions = {self.inputs} values"
            )
        scales = _validate.integer("features.scales", self.scales, at_least=1)
        angles = _validate.integer("features.angles", self.angles, at_least=1)
        if 2**scales >= min(image.height, image.width):
            hint = "An average is over 2^features.scales pixels, which must be fewer than an image has."
            raise _validate.refuse("features.scales", scales, "a smaller number for these images", hint)
        values = scattering_dimensions(self.shape, scales, angles)
        check_dimensions(self.dimensions, values, f"{values}, the coefficients of one image")
        _validate.one_of("features.normalization", self.normalization, _NORMALIZATIONS)
        self._normalization()  # its own checks

    @property
    def channels(self) -> int:
        """Paths times the image's channels."""
        return ImageShape.of("features.shape", self.shape).channels * scattering_paths(
            self.scales, self.angles
        )

    @property
    def releases(self) -> tuple[Release, ...]:
        """That of `normalization: data`, or nothing."""
        stage = self._normalization()
        return stage.releases if isinstance(stage, PrivateNormalization) else ()

    def fit(self, inputs: Inputs, noise: Noise) -> FittedFeatures:
        """Fits the normalization, if it is to the training rows."""
        transform = self._transform()
        stage = self._normalization()
        if not isinstance(stage, PrivateNormalization):
            return transform
        return FittedChain((transform, stage.fit(transform.transform(inputs), noise)))

    def arrays(self, fitted: FittedFeatures) -> Mapping[str, NDArray[Any]]:
        """The statistics of `normalization: data`."""
        return fitted.state

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> FittedFeatures:
        """The transform with a normalization that was released before."""
        stage = self._normalization()
        if not isinstance(stage, PrivateNormalization):
            return self._transform()
        return FittedChain((self._transform(), stage.restored(of_stage(1, arrays))))

    def ignored(self) -> dict[str, Any]:
        """Keys of the other normalizations."""
        keys = {"groups": "group", "noise_multiplier": "data", "mean_bound": "data", "square_bound": "data"}
        return {
            key: getattr(self, key)
            for key, word in keys.items()
            if self.normalization != word and getattr(self, key) is not None
        }

    def _transform(self) -> PublicMap:
        groups = self.groups if self.normalization == "group" else None
        image = ImageShape.of("features.shape", self.shape)
        return PublicMap(
            name="scattering",
            identity=f"scattering {image} J={self.scales} L={self.angles} groups={groups}",
            dimensions=self.dimensions,
            make=lambda: _layers(image, self.scales, self.angles, groups),
            cache=FeatureCache.of_user() if self.cache else None,
        )

    def _normalization(self) -> "GroupNormalization | PrivateNormalization | None":
        if self.normalization == "group":
            return GroupNormalization(
                inputs=self.dimensions, dimensions=self.dimensions, channels=self.channels, groups=self.groups
            )
        if self.normalization == "data":
            return PrivateNormalization(
                inputs=self.dimensions,
                dimensions=self.dimensions,
                channels=self.channels,
                noise_multiplier=self.noise_multiplier,
                mean_bound=self.mean_bound,
                square_bound=self.square_bound,
                num_examples=self.num_examples,
            )
        return None


def _layers(image: ImageShape, scales: int, angles: int, groups: int | None) -> "nn.Module":
    from torch import nn  # here, so that describing an experiment needs none

    from dpexp.features.layers import GroupNorm
    from dpexp.features.scattering_transform import Scattered

    scattering = Scattered(image, scales=scales, angles=angles)
    return scattering if groups is None else nn.Sequential(scattering, GroupNorm(groups, EPSILON))
