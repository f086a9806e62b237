"""Convolutional layers trained on a data set declared public, as the paper does for CIFAR-10."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Release
from dpexp.data import Dataset, Examples
from dpexp.features.cache import FeatureCache
from dpexp.features.features import Inputs, check_dimensions
from dpexp.features.images import ImageShape
from dpexp.features.public_map import PublicMap, code_version
from dpexp.noise import Noise

if TYPE_CHECKING:
    from dpexp.features.public_network import ConvolutionalLayers

__all__ = ["Pretrained", "pretrained_dimensions"]


@final
@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """Fixed convolutional layers, trained without privacy on public images of the same shape.

    Abadi et al. (2016), section 5.3, train them on CIFAR-100 and keep them fixed for CIFAR-10.

    *Formal guarantees.* The layers are made from the public data set alone, and are applied to one row at a
    time: nothing about the private rows is released. That the public data set is public is the user's word;
    the run's own data set is refused by its name.

    Attributes:
        inputs: Values per row.
        shape: Of the images: [height, width] or [channels, height, width].
        crop: Pixels a side that are looked at, in the middle; None for all.
        channels: That come out of each 5×5 convolution; each is followed by a 2×2 pool.
        dimensions: Values per row that come out.
        public: The data set that is declared public.
        private: Name of the data set that is trained on privately.
        epochs: Passes over the public training rows.
        lr: Adam's learning rate; decays to 0.
        key: Public number that the initial parameters are drawn from.
        cache: Whether to keep layers and features in the user's cache.
    """

    inputs: int
    shape: Any
    channels: Sequence[int]
    dimensions: int
    public: Dataset
    private: str
    epochs: int
    lr: float
    key: int = 0
    cache: bool = True
    crop: int | None = None

    def __post_init__(self) -> None:
        image = ImageShape.of("features.shape", self.shape)
        if image.values != self.inputs:
            expected = f"a shape of data.dimensions = {self.inputs} values"
            raise _validate.refuse("features.shape", self.shape, expected)
        values = pretrained_dimensions(self.shape, self.channels, self.crop)
        if values < 1:
            expected = "fewer layers: each halves the image"
            raise _validate.refuse("features.channels", self.channels, expected)
        check_dimensions(self.dimensions, values, f"{values}, what comes out of the last layer")
        _validate.integer("features.epochs", self.epochs, at_least=1)
        _validate.number("features.lr", self.lr, above=0)
        _validate.integer("features.key", self.key, at_least=0)
        if not isinstance(self.public, Dataset):
            raise _validate.refuse("features.public", self.public, "a data set, made by a _target_")
        if self.public.name == self.private:
            expected = "another data set than data.name, which is private"
            raise _validate.refuse("features.public.name", self.public.name, expected)
        if self.public.dimensions != self.inputs:
            expected = f"data.dimensions = {self.inputs}, so that both have images of one shape"
            raise _validate.refuse("features.public.dimensions", self.public.dimensions, expected)

    @property
    def releases(self) -> tuple[Release, ...]:
        """Nothing."""
        return ()

    @property
    def declared_public(self) -> tuple[str, ...]:
        """The data set that the layers were trained on."""
        return (f"convolutional layers trained on {self.public.name}",)

    def fit(self, inputs: Inputs, noise: Noise) -> PublicMap:
        """Trains the layers on public rows, or finds them in the cache. Private rows are not looked at."""
        weights = self._weights()
        return PublicMap(
            name="pretrained layers",
            identity=f"pretrained {self._geometry} {_digest(weights)}",
            dimensions=self.dimensions,
            make=lambda: self._layers().load(weights),
            cache=FeatureCache.of_user() if self.cache else None,
        )

    def ignored(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def _weights(self) -> NDArray[np.float32]:
        from dpexp.features.public_network import trained_on

        train, layers = self.public.load().train, self._layers()
        if not isinstance(train, Examples):
            raise _validate.refuse("features.public", self.public.name, "a data set of arrays in memory")
        rows = train.inputs.reshape(len(train), -1)

        def trained(inputs: Inputs) -> Inputs:
            return trained_on(
                inputs,
                train.targets,
                layers,
                values=self.dimensions,
                epochs=self.epochs,
                lr=self.lr,
                key=self.key,
            )

        if not self.cache:
            return trained(rows)
        size = sum(parameter.numel() for parameter in layers.parameters())
        identity = (
            f"layers {self._geometry} epochs={self.epochs} lr={self.lr!r} key={self.key} "
            f"targets={_digest(train.targets)} by {code_version()}"
        )
        return FeatureCache.of_user().get(identity, rows, (1, size), trained)

    def _layers(self) -> "ConvolutionalLayers":
        from dpexp.features.public_network import ConvolutionalLayers  # imports torch

        return ConvolutionalLayers(ImageShape.of("features.shape", self.shape), self.channels, self.crop)

    @property
    def _geometry(self) -> str:
        return f"{self.shape} crop={self.crop} channels={list(self.channels)}"


def pretrained_dimensions(shape: Any, channels: Sequence[int], crop: int | None = None) -> int:
    """Values per image after the last layer."""
    image = ImageShape.of("features.shape", shape).cropped("features.crop", crop)
    if isinstance(channels, str) or not isinstance(channels, Sequence) or not channels:
        raise _validate.refuse("features.channels", channels, "a list of whole numbers, such as [32, 64]")
    counts = [_validate.integer("features.channels", count, at_least=1) for count in channels]
    values: int = counts[-1] * math.prod(size // 2 ** len(counts) for size in (image.height, image.width))
    return values


def _digest(values: NDArray[Any]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).hexdigest()
