"""Colour images of 32×32 pixels in the original binary files of CIFAR-10 and CIFAR-100 (Krizhevsky 2009).

A file is a row of records without a header: one byte of label (CIFAR-100: coarse, then fine), then 3072
bytes of pixels, the red plane first, each plane row by row (https://www.cs.toronto.edu/~kriz/cifar.html,
"Binary version").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import one_of, refuse
from dpexp.data.fetched import Fetched, checked_urls
from dpexp.data.mirror import ArchiveMirror
from dpexp.data.source import Source
from dpexp.data.splits import Examples, Splits, cut

__all__ = ["CIFAR10", "CIFAR100", "read_records"]

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, kw_only=True)
class _CIFAR(Fetched):
    """What both have in common.

    Attributes:
        mirrors: Archives that hold the files.
    """

    mirrors: Sequence[str]

    train: ClassVar[tuple[str, ...]]
    test: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_urls(self.mirrors)

    @property
    def _labels(self) -> tuple[str, ...]:
        """The labels in a record, in order."""
        return ("label",)

    @property
    def _label(self) -> str:
        """The one that is the target."""
        return "label"

    def load(self) -> Splits:
        """Loads float32 vectors of shape `(N, 3072)` in [0, 1]: the red, green and blue plane.

        Raises:
            UserError: If a file is found nowhere, is damaged, or contradicts what is declared.
        """
        files = self._files()
        train, test = (self._joined(files, names) for names in (self.train, self.test))
        return cut(train, test, validation=self.validation)

    def _joined(self, files: Mapping[str, bytes], names: Sequence[str]) -> Examples:
        parts = [self._read(name, files[name]) for name in names]
        inputs = np.concatenate([part.inputs for part in parts])
        return Examples(inputs=inputs, targets=np.concatenate([part.targets for part in parts]))

    def _read(self, name: str, content: bytes) -> Examples:
        labels, pixels = read_records(name, content, labels=len(self._labels))
        return self._examples(
            np.divide(pixels, 255, dtype=np.float32),
            labels[:, self._labels.index(self._label)],
            origin=(name, name),
        )

    def _remotes(self) -> list[Source]:
        return [ArchiveMirror(url=url) for url in self.mirrors]


@final
@dataclass(frozen=True, kw_only=True)
class CIFAR10(_CIFAR):
    """60,000 images of 10 classes, in five training files and one test file."""

    train: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    test: ClassVar[tuple[str, ...]] = ("test_batch.bin",)
    names: ClassVar[tuple[str, ...]] = (*train, *test)
    archives: ClassVar[tuple[str, ...]] = ("cifar-10-binary.tar.gz",)
    subfolders: ClassVar[tuple[str, ...]] = ("cifar-10-batches-bin",)


@final
@dataclass(frozen=True, kw_only=True)
class CIFAR100(_CIFAR):
    """60,000 images of 100 classes in 20 superclasses.

    Attributes:
        label: `fine`, the class, or `coarse`, the superclass.
    """

    label: str

    train: ClassVar[tuple[str, ...]] = ("train.bin",)
    test: ClassVar[tuple[str, ...]] = ("test.bin",)
    names: ClassVar[tuple[str, ...]] = (*train, *test)
    archives: ClassVar[tuple[str, ...]] = ("cifar-100-binary.tar.gz",)
    subfolders: ClassVar[tuple[str, ...]] = ("cifar-100-binary",)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("data.label", self.label, self._labels)

    @property
    def _labels(self) -> tuple[str, ...]:
        return ("coarse", "fine")

    @property
    def _label(self) -> str:
        return self.label


def read_records(name: str, content: bytes, *, labels: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Reads a file of records, whole or not at all.

    Args:
        name: The file's name, for messages.
        content: All bytes of the file.
        labels: Bytes of label before the pixels.

    Returns:
        Labels of shape `(N, labels)` and pixels of shape `(N, 3, 32, 32)`, both read-only.

    Raises:
        UserError: If the file is not a whole number of records, or empty.
    """
    record = labels + _PIXELS
    if not content or len(content) % record:
        hint = "The file is damaged or is another file: replace it with an intact copy."
        raise refuse(f"size of {name}", len(content), f"a positive multiple of {record} bytes", hint)
    records: NDArray[Any] = np.frombuffer(content, np.uint8).reshape(-1, record)
    return records[:, :labels], records[:, labels:].reshape(-1, 3, 32, 32)
