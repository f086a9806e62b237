"""Where the rows of a lot are read: from tensors, or from a map-style data set by workers, ahead of use."""

import contextlib
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dpexp._validate import UserError
from dpexp.data.rows import Rows
from dpexp.data.splits import AnyExamples, Examples

__all__ = ["ReadByWorkers", "Store", "Tensors", "Wanted", "contents"]

Label = TypeVar("Label")
Transform = Callable[[NDArray[Any]], NDArray[Any]]

_SAMPLED = 64  # rows of a map-style data set that its digest looks at


@final
@dataclass(frozen=True)
class Wanted(Generic[Label]):
    """Rows to be read together.

    Attributes:
        position: Number of the lot or batch.
        label: What comes back with them.
        rows: Row numbers in the split, shape `(n,)`; there may be none.
    """

    position: int
    label: Label
    rows: range | NDArray[np.int64]


class Store(Protocol):
    """The examples of a split, after the features."""

    def __len__(self) -> int:
        """Rows."""
        ...

    def read(self, tasks: Iterable[Wanted[Label]]) -> Iterator[tuple[Label, Tensor, Tensor]]:
        """For each task in order its label, inputs `(n, *shape)` and targets `(n,)`."""
        ...


@final
class Tensors(Store):
    """Examples in memory, indexed directly."""

    def __init__(self, examples: Examples, transform: Transform) -> None:
        self._inputs = torch.from_numpy(np.ascontiguousarray(transform(examples.inputs)))
        self._targets = torch.from_numpy(np.ascontiguousarray(examples.targets))

    def __len__(self) -> int:
        return len(self._targets)

    def read(self, tasks: Iterable[Wanted[Label]]) -> Iterator[tuple[Label, Tensor, Tensor]]:
        """Yields views of consecutive rows, and copies of others."""
        for task in tasks:
            inputs, targets = (_rows_of(tensor, task.rows) for tensor in (self._inputs, self._targets))
            yield task.label, inputs, targets


def _rows_of(tensor: Tensor, rows: range | NDArray[np.int64]) -> Tensor:
    if isinstance(rows, range):
        return tensor[rows.start : rows.stop]
    return tensor.index_select(0, torch.from_numpy(rows))  # three times as fast as tensor[rows]


@final
class ReadByWorkers(Store):
    """Examples of a map-style data set: a lot is one task of a torch worker.

    Which rows a lot has is decided before any worker sees it. At most `workers · prefetch` lots are in memory
    besides the one in use, since torch hands out the next task when a lot is taken.

    Args:
        rows: The examples.
        seed: For each position what draws inside the data set, such as augmentation, are seeded with, so
            that they do not depend on which worker reads the rows.
    """

    def __init__(self, rows: Rows, seed: Callable[[int], int]) -> None:
        self._rows, self._seed = rows, seed

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, tasks: Iterable[Wanted[Label]]) -> Iterator[tuple[Label, Tensor, Tensor]]:
        """Yields what was read.

        Raises:
            UserError: If a row cannot be read, or is not what is declared; it is named.
        """
        workers = min(self._rows.workers, _processors())  # more only take turns, and torch warns of them
        loader: DataLoader[Any] = DataLoader(
            _Tasks(self._rows),
            sampler=((task, self._seed(task.position)) for task in tasks),
            batch_size=None,  # a task is a batch already
            num_workers=workers,
            prefetch_factor=self._rows.prefetch if workers else None,
            collate_fn=_as_it_is,
            generator=torch.Generator(),  # what torch seeds workers from; without it, a draw from ours
        )
        for label, inputs, targets in loader:
            if isinstance(inputs, str):
                raise UserError(inputs)
            yield label, torch.from_numpy(inputs), torch.from_numpy(targets)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def contents(examples: AnyExamples) -> Iterator[Any]:
    """What a digest of examples looks at: all of them in memory, or how many there are and 64 of them."""
    if isinstance(examples, Examples):
        yield np.ascontiguousarray(examples.inputs).data
        yield np.ascontiguousarray(examples.targets).data
        return
    numbers = np.unique(np.linspace(0, len(examples) - 1, _SAMPLED).astype(np.int64))
    with _seeded(0):
        inputs, targets = examples.read(numbers)
    yield from (str(len(examples)).encode(), inputs.data, targets.data)


@final
class _Tasks(Dataset[Any]):
    """What torch takes for a data set: indexed by a task, it gives what was read, or what went wrong."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, seeded_task: tuple[Wanted[Label], int]) -> tuple[Label, Any, Any]:
        task, seed = seeded_task
        try:
            with _seeded(seed):
                inputs, targets = self._rows.read(task.rows)
        except UserError as error:
            return task.label, str(error), None  # raised here, torch would bury it in a worker's traceback
        return task.label, inputs, targets


def _as_it_is(found: Any) -> Any:
    return found


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the global generators that data sets draw from, and then leaves them as they were before."""
    before = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.random.set_rng_state(before[2])
