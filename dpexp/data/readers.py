"""The user's files of arrays and tables: `.npy`, `.npz`, `.csv`, `.parquet`. Code in a file is never run."""

import csv
import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpexp._validate import UserError, did_you_mean, refuse

if TYPE_CHECKING:
    import pandas as pd

Read = TypeVar("Read")

__all__ = ["check_names", "read_array", "read_arrays", "read_table", "table_or_arrays"]

_ENDINGS = {".csv": "table", ".csv.gz": "table", ".parquet": "table", ".npz": "arrays", ".npy": "array"}
_INTACT = "Replace the file with an intact copy."


def table_or_arrays(key: str, path: Any) -> str:
    """`table`, `arrays` or `array`, by the file's ending.

    Raises:
        UserError: If the ending is another one.
    """
    for ending, kind in _ENDINGS.items():
        if isinstance(path, str) and path.lower().endswith(ending):
            return kind
    raise refuse(key, path, f"a file that ends in {', '.join(_ENDINGS)}")


def read_table(key: str, path: str) -> "pd.DataFrame":
    """A CSV file with a header (cells as they are written) or a Parquet file.

    Raises:
        UserError: If the file is not there or cannot be read whole.
    """
    import pandas as pd

    file = _file(key, path)
    if path.lower().endswith(".parquet"):
        return _read(key, file, lambda: pd.read_parquet(file))
    table = _read(key, file, lambda: pd.read_csv(file, dtype=str, na_filter=False, skipinitialspace=True))
    if not isinstance(table.index, pd.RangeIndex):  # pandas took the first fields for names of rows
        named, fields = table.shape[1], table.shape[1] + table.index.nlevels
        raise UserError(
            f"{key}: the header of {file} names {named} columns, and the first row has {fields} fields."
            "\nGive each column a name, or remove the commas at the ends of the rows."
        )
    if table.shape[1] and (table.iloc[:, -1] == "").any():  # a field that is missing looks like an empty one
        _refuse_short_rows(key, file, table.shape[1])
    return table


def _refuse_short_rows(key: str, file: Path, columns: int) -> None:
    """A row without one of its fields: what follows is then in other columns, not the last one empty."""
    opened = gzip.open if file.name.lower().endswith(".gz") else open
    with opened(file, "rt", encoding="utf-8", newline="") as lines:
        rows = (fields for fields in csv.reader(lines, skipinitialspace=True) if fields)
        try:
            lengths = [len(fields) for fields in rows]
        except csv.Error as error:
            raise UserError(f"{key}: {file} cannot be read: {error}.\n{_INTACT}") from error
    for row, found in enumerate(lengths[1:]):
        if found != columns:
            raise UserError(
                f"{key}: row {row} (from 0) of {file} has {found} fields, expected {columns}, as its header."
                "\nWrite a comma for each field, an empty one too."
            )


def read_arrays(key: str, path: str) -> Mapping[str, NDArray[Any]]:
    """The arrays of a `.npz` file by name.

    Raises:
        UserError: If the file is not there, cannot be read whole, or holds pickled objects.
    """

    def read() -> dict[str, NDArray[Any]]:
        # An .npy file under another name would be loaded as an array, not as a mapping of arrays.
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in names}
        for name, array in found.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"its member {name} is no array")
        return found

    file = _file(key, path)
    return _read(key, file, read)


def read_array(key: str, path: str) -> NDArray[Any]:
    """The array of a `.npy` file.

    Raises:
        UserError: If the file is not there, cannot be read whole, or holds pickled objects.
    """
    file = _file(key, path)
    return _read(key, file, lambda: np.lib.format.open_memmap(file, mode="r"))


def check_names(key: str, wanted: Iterable[str], found: Iterable[str], path: str) -> None:
    """Refuses names that a file does not have, with the one that was meant."""
    found = [str(name) for name in found]
    for name in wanted:
        if name not in found:
            shown = ", ".join(found[:20]) + (", …" if len(found) > 20 else "")
            raise refuse(key, name, f"one of {shown}, as in {path}", did_you_mean(name, found))


def _file(key: str, path: str) -> Path:
    file = Path(path).expanduser()
    if not file.is_file():
        raise refuse(key, path, "a file that exists", f"It is looked for from {Path.cwd()}.")
    if file.stat().st_size == 0:
        raise refuse(key, path, "a file that is not empty")
    return file


def _read(key: str, file: Path, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except MemoryError as error:
        raise UserError(f"{key}: {file} does not fit into memory: {error}.") from error
    except UnicodeDecodeError as error:
        hint = "Save it in that encoding, as `iconv -f latin1 -t utf-8` does."
        raise UserError(f"{key}: {file} is not text in UTF-8: {error}.\n{hint}") from error
    except ValueError as error:
        if "pickle" in str(error) or "Python objects" in str(error):
            hint = "Loading them could run code from the file; save numbers: np.asarray(values, float)."
            raise UserError(
                f"{key}: {file} holds pickled objects, expected arrays of numbers.\n{hint}"
            ) from error
        raise UserError(f"{key}: {file} cannot be read: {str(error).strip()}.\n{_INTACT}") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise UserError(f"{key}: {file} is damaged: {type(error).__name__}: {error}.\n{_INTACT}") from error
