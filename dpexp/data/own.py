"""The user's own data sets in code: a map-style `Dataset`, or the data sets of a `LightningDataModule`."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from dpexp import _validate
from dpexp._validate import UserError, refuse
from dpexp.data.held_out import HeldOut
from dpexp.data.rows import Rows
from dpexp.data.splits import AnyExamples, Splits, cut, in_memory
from dpexp.trust import trusted_object

__all__ = ["LightningData", "TorchDataset"]

_STATISTICS = "none: nothing is computed from its rows; public: what is, may be published"
_STATISTICS_HINT = (
    "Means, vocabularies and the like that are computed from private rows are releases that no ε here pays "
    "for. Say that there are none, or that they come from public data."
)


@dataclass(frozen=True, kw_only=True)
class _Own(HeldOut):
    """What both have in common.

    Attributes:
        dtype: `float32`, or `int64` for token ids; what a row holds is converted to it.
        tokens: Number of token ids where dtype is `int64`; otherwise None.
        statistics: `none` or `public`: what the code computes from rows of private splits, such as a mean to
            subtract. There is no default: only who wrote the code can know.
        in_memory: Whether all rows are read once, before training; otherwise each lot is when it is needed.
        workers: Processes that read lots ahead; 0 reads them in this one.
        prefetch: Lots that each worker reads ahead: workers · prefetch are in memory, besides the lot in use.
    """

    dtype: str = "float32"
    tokens: int | None = None
    statistics: str | None
    in_memory: bool = False
    workers: int = 2
    prefetch: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.one_of("data.dtype", self.dtype, ("float32", "int64"))
        if (self.tokens is not None) != (self.dtype == "int64"):
            raise refuse(
                "data.tokens", self.tokens, "the number of token ids if data.dtype is int64, else null"
            )
        for field, least in {"workers": 0, "prefetch": 1}.items():
            object.__setattr__(
                self, field, _validate.integer(f"data.{field}", getattr(self, field), at_least=least)
            )
        if self.statistics not in ("none", "public"):
            raise refuse("data.statistics", self.statistics, _STATISTICS, _STATISTICS_HINT)

    @property
    def vocabulary(self) -> int | None:
        """`tokens`."""
        return self.tokens

    def _rows(self, key: str, source: Any) -> AnyExamples:
        rows = Rows(
            name=key,
            source=_map_style(key, source),
            shape=self.input_shape,
            dtype=self.dtype,
            num_classes=self.num_classes,
            vocabulary=self.tokens,
            workers=self.workers,
            prefetch=self.prefetch,
        )
        return in_memory(rows) if self.in_memory else rows


@final
@dataclass(frozen=True, kw_only=True)
class TorchDataset(_Own):
    """Any `torch.utils.data.Dataset`, or other object with a length and `[row]`, of (input, class) pairs.

    Attributes:
        train: `_target_` and keys of the training data set.
        test: Those of the test data set; `held_out` likewise.
    """

    train: Mapping[str, Any]
    test: Mapping[str, Any]

    def load(self) -> Splits:
        """Makes the data sets; rows are read when they are needed, if not `in_memory`.

        Raises:
            UserError: If a data set cannot be made, or is no map-style data set.
        """
        train, test = (
            self._rows(f"data.{name}", made(f"data.{name}", getattr(self, name)))
            for name in ("train", "test")
        )
        if self.held_out is None:
            return cut(train, test, validation=self.validation)
        held_out = self._rows("data.held_out", made("data.held_out", self.held_out))
        return Splits(train=train, validation=held_out, test=test, validation_is_test=False)


@final
@dataclass(frozen=True, kw_only=True)
class LightningData(_Own):
    """The data sets of a `LightningDataModule`; its loaders, samplers and collation are never used.

    Attributes:
        module: `_target_` and keys of the data module, whose `prepare_data` and `setup` are called.
        train: The attribute, or method without arguments, that holds the training data set.
        test: That of the test data set; `held_out` likewise.
    """

    module: Mapping[str, Any]
    train: str
    test: str

    def load(self) -> Splits:
        """Makes the data module, sets it up, and takes the named data sets.

        Raises:
            UserError: If the module cannot be made, or a name is no map-style data set of its.
        """
        module = made("data.module", self.module)
        if not all(callable(getattr(module, name, None)) for name in ("prepare_data", "setup")):
            raise UserError(f"data.module is {_named(module)}, expected a LightningDataModule.")
        module.prepare_data()
        for stage in ("fit", "test"):
            module.setup(stage)
        train, test = (self._taken(module, name) for name in ("train", "test"))
        if self.held_out is None:
            return cut(train, test, validation=self.validation)
        return Splits(
            train=train, validation=self._taken(module, "held_out"), test=test, validation_is_test=False
        )

    def _taken(self, module: Any, split: str) -> AnyExamples:
        key, name = f"data.{split}", getattr(self, split)
        if not isinstance(name, str) or not hasattr(module, name):
            known = [other for other in vars(module) if not other.startswith("_")]
            hint = _validate.did_you_mean(str(name), known)
            raise refuse(key, name, f"an attribute or method of {_named(module)}", hint)
        found = getattr(module, name)
        takes_nothing = inspect.ismethod(found) and not inspect.signature(found).parameters
        return self._rows(f"{key} = {name}", found() if takes_nothing else found)


def made(key: str, node: Any) -> Any:
    """The object that a node of the configuration describes: `_target_` with its keys, made inside out.

    Raises:
        UserError: If it is not trusted, cannot be imported, or does not take its keys.
    """
    if isinstance(node, Mapping) and "_target_" in node:
        keys = {name: made(f"{key}.{name}", value) for name, value in node.items() if name != "_target_"}
        return _called(key, str(node["_target_"]), keys)
    if isinstance(node, Mapping):
        return {name: made(f"{key}.{name}", value) for name, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [made(f"{key}[{index}]", value) for index, value in enumerate(node)]
    return node


def _called(key: str, target: str, keys: Mapping[str, Any]) -> Any:
    make = trusted_object(f"{key}._target_", target)
    try:
        return make(**keys)
    except (TypeError, ValueError, OSError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{key}: {target} cannot be made: {type(error).__name__}: {error}.") from error


def _map_style(key: str, source: Any) -> Any:
    """The data set itself, provided that it is one whose rows can be read in any order.

    Raises:
        UserError: If it is not.
    """
    if hasattr(source, "batch_sampler") or hasattr(source, "collate_fn"):
        hint = "Its sampler and batches would not be the lots that are paid for: name its data set instead."
        raise UserError(f"{key} is {_named(source)}, a loader, expected a data set.\n{hint}")
    streams = any(kind.__name__ == "IterableDataset" for kind in type(source).__mro__)
    readable = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if streams or not readable or isinstance(source, str | Mapping):
        hint = "Lots are drawn by row number, so that every row must be readable by its number."
        raise UserError(f"{key} is {_named(source)}, expected a map-style data set: len() and [row].\n{hint}")
    return source


def _named(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"
