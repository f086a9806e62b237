"""Features of a network that was trained on ImageNet, which is declared public."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.data import PackageFiles
from dpexp.features.cache import FeatureCache
from dpexp.features.features import Inputs, check_dimensions
from dpexp.features.images import ImageShape
from dpexp.features.public_map import PublicMap
from dpexp.noise import Noise

if TYPE_CHECKING:
    from torch import nn

__all__ = ["EfficientNet"]

_FILE = "efficientnet-lite0-57934424.pth"
_WIDTH = 1280
_SMALLEST = 32  # pixels a side: five layers halve them


@final
@dataclass(frozen=True, kw_only=True)
class EfficientNet:
    """The last average of EfficientNet-Lite0 with published weights, applied to one image at a time.

    *Formal guarantees.* The network is fixed and nothing about the private rows goes into it: nothing is
    released. That the images of ImageNet are public is the user's word.

    Attributes:
        inputs: Values per row, pixels in [0, 1].
        shape: Of the images: [height, width] or [channels, height, width] with one or three channels.
        size: Pixels a side that images are scaled to; more are slower, and 224 is what it was trained on.
        dimensions: Values per row that come out: 1280.
        weights: The files of the weights.
        cache: Whether to keep the features in the user's cache.
    """

    inputs: int
    shape: Any
    size: int
    dimensions: int
    weights: PackageFiles
    cache: bool = True

    def __post_init__(self) -> None:
        image = ImageShape.of("features.shape", self.shape)
        if image.values != self.inputs:
            expected = f"a shape of data.dimensions = {self.inputs} values"
            raise _validate.refuse("features.shape", self.shape, expected)
        if image.channels not in (1, 3):
            raise _validate.refuse("features.shape", self.shape, "one or three channels, grey or colour")
        _validate.integer("features.size", self.size, at_least=_SMALLEST)
        check_dimensions(self.dimensions, _WIDTH, f"{_WIDTH}, what comes out of the network")
        if not isinstance(self.weights, PackageFiles):
            raise _validate.refuse("features.weights", self.weights, "files, made by a _target_")

    @property
    def releases(self) -> tuple[Release, ...]:
        """Nothing."""
        return ()

    @property
    def declared_public(self) -> tuple[str, ...]:
        """ImageNet."""
        return ("EfficientNet-Lite0 trained on ImageNet",)

    def fit(self, inputs: Inputs, noise: Noise) -> PublicMap:
        """Finds the weights. Private rows are not looked at."""
        content = self.weights.read(_FILE)
        image = ImageShape.of("features.shape", self.shape)
        digest = hashlib.sha256(content).hexdigest()

        def make() -> "nn.Module":
            from dpexp.features.efficientnet_lite import EfficientNetLite0  # imports torch

            return EfficientNetLite0(image, self.size).load(content)

        return PublicMap(
            name="EfficientNet-Lite0",
            identity=f"efficientnet {image} size={self.size} {digest}",
            dimensions=self.dimensions,
            make=make,
            cache=FeatureCache.of_user() if self.cache else None,
        )

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}
