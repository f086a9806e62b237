"""The shape of images, and how a transform of 2^J pixels pads and shrinks them. No torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from dpexp import _validate

__all__ = ["ImageShape", "scattering_dimensions"]


@final
@dataclass(frozen=True, kw_only=True)
class ImageShape:
    """Images of so many channels, rows and columns, as rows of values in this order."""

    channels: int
    height: int
    width: int

    @classmethod
    def of(cls, key: str, shape: Any) -> "ImageShape":
        """From [height, width] or [channels, height, width].

        Raises:
            UserError: It is neither.
        """
        if isinstance(shape, str) or not isinstance(shape, Sequence) or len(shape) not in (2, 3):
            raise _validate.refuse(key, shape, "[height, width] or [channels, height, width]")
        sizes = [_validate.integer(f"{key}[{index}]", size, at_least=1) for index, size in enumerate(shape)]
        channels, height, width = sizes if len(sizes) == 3 else [1, *sizes]
        return cls(channels=channels, height=height, width=width)

    @property
    def values(self) -> int:
        """Values per image."""
        return self.channels * self.height * self.width

    def cropped(self, key: str, side: int | None) -> "ImageShape":
        """Of the middle, `side` pixels high and wide; itself where that is None.

        Raises:
            UserError: The image has no such middle.
        """
        if side is None:
            return self
        side = _validate.integer(key, side, at_least=1)
        if side > min(self.height, self.width):
            raise _validate.refuse(key, side, f"at most {min(self.height, self.width)}, the pixels there are")
        return ImageShape(channels=self.channels, height=side, width=side)

    def padded(self, scales: int) -> tuple[int, int]:
        """Height and width with at least 2^J reflected pixels in all: a multiple of 2^J (Kymatio's rule)."""
        height, width = (
            (size + 2**scales) // 2**scales * 2**scales + 2**scales for size in (self.height, self.width)
        )
        return height, width

    def padding(self, scales: int) -> tuple[int, int, int, int]:
        """Pixels left, right, above and below."""
        height, width = self.padded(scales)
        above, left = (height - self.height) // 2, (width - self.width) // 2
        return left, width - self.width - left, above, height - self.height - above

    def averaged(self, scales: int) -> tuple[int, int]:
        """Height and width after averaging over 2^J pixels."""
        return self.height // 2**scales, self.width // 2**scales


def scattering_paths(scales: int, angles: int) -> int:
    """1 + JL + L²J(J-1)/2."""
    return 1 + scales * angles + angles**2 * math.comb(scales, 2)


def scattering_dimensions(shape: Any, scales: int, angles: int) -> int:
    """Values per image after a scattering transform."""
    image = ImageShape.of("features.shape", shape)
    return image.channels * scattering_paths(scales, angles) * math.prod(image.averaged(scales))
