"""The user's own rows in `.npz`, `.npy`, CSV or Parquet files."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp._validate import UserError, refuse
from dpexp.data.held_out import HeldOut
from dpexp.data.part import Part, divided, refuse_shared
from dpexp.data.readers import check_names, read_array, read_arrays, read_table, table_or_arrays
from dpexp.data.rule import check_rule
from dpexp.data.splits import Splits
from dpexp.data.table import Column, Number, as_numbers, columns_of, encoded

__all__ = ["Arrays"]


@final
@dataclass(frozen=True, kw_only=True)
class Arrays(HeldOut):
    """Rows in files of the user's, with a column map.

    A file is a table (`.csv` with a header, `.csv.gz`, `.parquet`), a set of arrays (`.npz`), or a pair of
    arrays (`{inputs: x.npy, target: y.npy}`). Files are read whole; code in them is never run.

    Attributes:
        train: The training file.
        test: The test file, or a public rule that cuts test rows off the training file. `held_out` is a file.
        inputs: Of a table, the columns: names or patterns such as `pixel*`, or a mapping from them to what
            is publicly known of each (`columns_of`); of `.npz`, the array's name.
        target: The column or array of classes.
        classes: The classes' names where the target is words, in the order of their numbers.
        id: A column or array that names whom a row is about; nobody may be in two splits. None for none.
        shift: Public number subtracted from every input.
        scale: Public number that inputs are then divided by, not 0.
        tokens: Number of token ids where inputs are such; None where they are values.
    """

    train: Any
    test: Any
    inputs: Any
    target: str
    classes: Sequence[str] | None = None
    id: str | None = None
    shift: float = 0.0
    scale: float = 1.0
    tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, value in {"data.shift": self.shift, "data.scale": self.scale}.items():
            _validate.number(key, value)
        if self.scale == 0:
            raise refuse("data.scale", self.scale, "a number other than 0")
        if self.tokens is not None:
            object.__setattr__(self, "tokens", _validate.integer("data.tokens", self.tokens, at_least=2))
        if self.classes is not None and len(self.classes) != self.num_classes:
            raise refuse("data.num_classes", self.num_classes, f"{len(self.classes)}, as data.classes says")
        if not self._test_is_file:
            object.__setattr__(self, "test", check_rule("data.test", self.test))
            if self.test == 0:
                raise refuse("data.test", self.test, "a file, or a rule that cuts rows off data.train")

    @property
    def _test_is_file(self) -> bool:
        return isinstance(self.test, str) or (isinstance(self.test, Mapping) and "inputs" in self.test)

    @property
    def vocabulary(self) -> int | None:
        """`tokens`."""
        return self.tokens

    def load(self) -> Splits:
        """Reads the files.

        Raises:
            UserError: If a file is not there, is damaged, or contradicts what is declared: with file and row.
        """
        train, test = self._train_and_test()
        train, validation = self._train_and_validation(train, test)
        for one, other in ((train, test), (train, validation), (validation, test)):
            if one is not other:
                refuse_shared(one, other)
        return Splits(
            train=train.examples,
            validation=validation.examples,
            test=test.examples,
            validation_is_test=validation is test,
        )

    def _train_and_test(self) -> tuple[Part, Part]:
        train = self._part("data.train", self.train)
        if self._test_is_file:
            return train, self._part("data.test", self.test)
        return divided("data.test", train, self.test)

    def _train_and_validation(self, train: Part, test: Part) -> tuple[Part, Part]:
        if self.held_out is not None:
            return train, self._part("data.held_out", self.held_out)
        return (train, test) if self.validation == 0 else divided("data.validation", train, self.validation)

    def _part(self, key: str, file: Any) -> Part:
        if isinstance(file, Mapping):
            return self._pair(key, file)
        kind = table_or_arrays(key, file)
        if kind == "array":
            raise refuse(key, file, "{inputs: x.npy, target: y.npy}: a pair of files")
        return self._table(key, file) if kind == "table" else self._arrays(key, file)

    def _pair(self, key: str, files: Mapping[str, Any]) -> Part:
        if set(files) != {"inputs", "target"}:
            raise refuse(key, dict(files), "a file, or {inputs: x.npy, target: y.npy}")
        for name, path in files.items():
            if table_or_arrays(f"{key}.{name}", path) != "array":
                raise refuse(f"{key}.{name}", path, "a .npy file")
        values, target = (read_array(f"{key}.{name}", files[name]) for name in ("inputs", "target"))
        if self.id is not None:
            raise refuse("data.id", self.id, "null where inputs and target are files of their own")
        return self._joined(values, target, None, origin=(files["inputs"], files["target"]))

    def _arrays(self, key: str, path: str) -> Part:
        arrays = read_arrays(key, path)
        if not isinstance(self.inputs, str):
            raise refuse("data.inputs", self.inputs, "the name of an array, as files are .npz")
        names = {"data.inputs": self.inputs, "data.target": self.target, "data.id": self.id}
        for set_at, name in names.items():
            check_names(set_at, [name] if name else [], arrays, path)
        ids = None if self.id is None else arrays[self.id].astype(str)
        origin = (f"{self.inputs!r} of {path}", f"{self.target!r} of {path}")
        return self._joined(arrays[self.inputs], arrays[self.target], ids, origin=origin)

    def _table(self, key: str, path: str) -> Part:
        table = read_table(key, path)
        check_names("data.target", [self.target], table.columns, path)
        check_names("data.id", [self.id] if self.id else [], table.columns, path)
        columns = self._matched(list(map(str, table.columns)), path)
        if len(table) == 0:
            raise UserError(f"{path} has no row, expected at least one.")
        values = encoded(path, table, columns)
        ids = None if self.id is None else table[self.id].astype(str).to_numpy()
        target = table[self.target]
        origin = (path, f"{self.target!r} of {path}")
        hint = "If the target is words, list them in data.classes."
        labels = target.to_numpy() if self.classes else as_numbers(origin[1], target, hint=hint)
        return self._joined(values, labels, ids, origin=origin)

    def _matched(self, names: list[str], path: str) -> dict[str, Column]:
        """Declared columns by name, with patterns replaced by the names that they match."""
        others = [name for name in names if name not in (self.target, self.id)]
        if self.inputs is None:
            return {name: Number() for name in others}
        matched: dict[str, Column] = {}
        for pattern, column in columns_of("data.inputs", self.inputs).items():
            found = [pattern] if pattern in names else fnmatch.filter(others, pattern)
            if not found:
                check_names("data.inputs", [pattern], names, path)
            matched |= {name: column for name in found if name not in matched}
        for name in (self.target, self.id):
            if name in matched:
                raise refuse("data.inputs", name, "columns other than data.target and data.id")
        return matched

    def _joined(
        self, values: NDArray[Any], target: NDArray[Any], ids: Any, *, origin: tuple[str, str]
    ) -> Part:
        if target.ndim != 1:
            raise refuse(f"shape of {origin[1]}", target.shape, "(N,): one class for each row")
        labels = self._classes(target, origin[1])
        if values.ndim < 1 or values.dtype.kind not in "fiub":
            raise refuse(f"type of {origin[0]}", str(values.dtype), "rows of numbers")
        examples = self._examples(self._converted(values, origin[0]), labels, origin=origin)
        if ids is not None and ids.shape != target.shape:
            raise refuse(f"shape of data.id in {origin[0]}", ids.shape, f"{target.shape}, as the target has")
        return Part(examples=examples, rows=np.arange(len(examples)), ids=ids, origin=origin[0])

    def _converted(self, values: NDArray[Any], origin: str) -> NDArray[Any]:
        if self.tokens is None:
            shifted = values.astype(np.float32)  # a copy, in which the rest is done in place
            shifted -= np.float32(self.shift)
            shifted /= np.float32(self.scale)
            return shifted
        if values.dtype.kind == "f":
            broken = np.argwhere(values != np.floor(values))
            if len(broken):
                row = int(broken[0][0])
                raise UserError(f"row {row} (from 0) of {origin} is no row of token ids: found a fraction.")
        return values.astype(np.int64)

    def _classes(self, target: NDArray[Any], origin: str) -> NDArray[np.int64]:
        if self.classes is None:
            return _whole(target, origin)
        numbers = {str(name): number for number, name in enumerate(self.classes)}
        found = [str(name).strip() for name in target]
        for row, name in enumerate(found):
            if name not in numbers:
                hint = _validate.did_you_mean(name, numbers)
                raise refuse(f"row {row} (from 0) of {origin}", name, f"one of {', '.join(numbers)}", hint)
        return np.array([numbers[name] for name in found], np.int64)


def _whole(target: NDArray[Any], origin: str) -> NDArray[np.int64]:
    if target.dtype.kind not in "fiub":
        raise refuse(f"type of {origin}", str(target.dtype), "numbers, or words with data.classes set")
    broken = np.flatnonzero(~np.isfinite(target) | (target != np.floor(target)))
    if broken.size:
        row = int(broken[0])
        raise refuse(f"label in row {row} (from 0) of {origin}", target[row].item(), "a whole number")
    return target.astype(np.int64)
