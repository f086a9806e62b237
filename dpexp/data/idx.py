"""The IDX format of the MNIST files: a big-endian header, then one unsigned byte per value.

The magic number's third byte is the type (8: unsigned byte), its fourth the number of dimensions;
one 32-bit length per dimension follows (http://yann.lecun.com/exdb/mnist, "IDX file format").
"""

import math
import struct

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import refuse

__all__ = ["read_images", "read_labels"]

_IMAGES = 2051  # 0x00000803: unsigned bytes, 3 dimensions
_LABELS = 2049  # 0x00000801: unsigned bytes, 1 dimension
_KINDS = {_IMAGES: "images", _LABELS: "labels"}

_HINT = "The file is damaged or is another file: replace it with an intact copy."


def read_images(name: str, content: bytes) -> NDArray[np.uint8]:
    """Reads gray images, whole or not at all.

    Args:
        name: The file's name, for messages.
        content: All bytes of the uncompressed file.

    Returns:
        Read-only uint8 array of shape `(N, height, width)`, 0 (paper) to 255 (full ink).

    Raises:
        UserError: If the magic number or the file's size is not that of an image file.
    """
    return _read(name, content, magic=_IMAGES, dimensions=3)


def read_labels(name: str, content: bytes) -> NDArray[np.uint8]:
    """Reads labels, whole or not at all.

    Args:
        name: The file's name, for messages.
        content: All bytes of the uncompressed file.

    Returns:
        Read-only uint8 array of shape `(N,)`.

    Raises:
        UserError: If the magic number or the file's size is not that of a label file.
    """
    return _read(name, content, magic=_LABELS, dimensions=1)


def _read(name: str, content: bytes, *, magic: int, dimensions: int) -> NDArray[np.uint8]:
    header = struct.Struct(f">{1 + dimensions}I")
    if len(content) < header.size:
        raise refuse(f"size of {name}", len(content), f"a header of {header.size} bytes first", _HINT)
    found, *shape = header.unpack_from(content)
    if found != magic:
        raise refuse(f"magic number of {name}", found, f"the number {magic} of {_KINDS[magic]}", _HINT)
    if 0 in shape:
        raise refuse(f"shape of {name}", tuple(shape), "at least 1 in every dimension", _HINT)
    size = header.size + math.prod(shape)
    if len(content) != size:
        expected = f"{size} bytes, as its header says (shape {tuple(shape)})"
        raise refuse(f"size of {name}", len(content), expected, _HINT)
    return np.frombuffer(content, np.uint8, offset=header.size).reshape(shape)
