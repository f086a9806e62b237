"""What fits into memory: the largest physical batch, and what is done when memory runs out all the same."""

import gc
import logging
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, final

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dpexp import _validate

__all__ = ["Halving", "is_out_of_memory", "largest_batch", "peak_bytes"]

# What depends on private rows is said here, and nowhere in strict mode.
_nonprivate_log = logging.getLogger("dpexp.nonprivate")
_MEGABYTE = 2**20
_T = TypeVar("_T")


def largest_batch(microbatch: Callable[[int], Any], *, memory_mb: float, at_most: int) -> int:
    """How many examples fit at once.

    Sizes grow twofold, or to what fits if every further example takes what the last ones did, whichever is
    less. Memory is a constant and so much for each example, less where kernels share it, so that what is
    stated is not passed on the way.

    Args:
        microbatch: Runs so many random rows through the engine. Never private ones: what fits would else
            depend on them.
        memory_mb: For the tensors that a microbatch makes, in MiB > 0: activations, per-example gradients
            and sums; not the weights, the optimizer's state and the lot.
        at_most: No more than this is ever needed, >= 1.

    Raises:
        UserError: Not even one example fits.
    """
    memory = memory_mb * _MEGABYTE
    microbatch(1)  # what is found once and kept (the layers' layout) is no part of the measure
    size, used = 1, peak_bytes(lambda: microbatch(1))
    if used > memory:
        raise _validate.refuse(
            "memory_mb",
            memory_mb,
            f"at least {math.ceil(used / _MEGABYTE)}, which one example takes",
            "Allow more memory, or take a smaller model.",
        )
    per_example = 0.0  # not known yet: two examples tell
    while (following := min(_fitting(size, memory - used, per_example), at_most)) > size:
        larger = peak_bytes(partial(microbatch, following))
        if larger > memory:  # more than before for each example, after all
            break
        per_example = (larger - used) / (following - size)
        size, used = following, larger
    return size


def _fitting(size: int, memory_left: float, per_example: float) -> int:
    """The next size: all that fits, but at most twice what has been measured."""
    more = math.inf if per_example <= 0 else memory_left / per_example
    return size + int(min(more, size))


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most bytes that tensors made by `work` hold at one time, on any device."""
    with _Allocated() as allocated:
        work()
    peak: int = allocated.peak
    return peak


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python had no memory left, on any device."""
    on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)


@final
class Halving:
    """Work on the rows of a lot, begun anew with half as many at once when memory runs out.

    What an attempt had summed up is gone with it, so that each row counts once. The smaller size is kept
    for the lots to come.
    """

    def __init__(self) -> None:
        self._limit: int | None = None

    def run(self, work: Callable[[int | None], _T], *, size: int | None, rows: int) -> _T:
        """What `work(size)` returns, for the largest size that memory allows.

        Args:
            work: Does the whole lot, so many rows at once (None: all); must leave nothing behind if it fails.
            size: How many rows at once were asked for; None for all.
            rows: How many there are.

        Raises:
            UserError: Not even one row at once fits.
        """
        while True:
            at_once = min((limit for limit in (size, self._limit) if limit is not None), default=None)
            try:
                return work(at_once)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).partition("\n")[0]
            # Here, and not above: the exception held the tensors of the attempt.
            self._halve(min(rows, at_once or rows), reason)

    def _halve(self, failed: int, reason: str) -> None:
        if failed <= 1:
            raise _validate.UserError(
                f"memory: a single example does not fit: {reason}\nTake a smaller model, or a machine with "
                "more memory."
            )
        self._limit = failed // 2
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        _nonprivate_log.warning(
            "nonprivate: memory ran out. The lot is begun anew; from here on lots are walked by %d examples "
            "at once. Set physical_batch_size to that, or less, to start with.",
            self._limit,
        )


@final
class _Allocated(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the storages that operations make until nothing holds them any more."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch in place of each kernel, in the backward pass too."""
        self._meet((arguments, keywords), self._nothing)
        result = function(*arguments, **(keywords or {}))
        self._meet(result, self._bytes)
        self.peak = max(self.peak, self._live)
        return result

    def _meet(self, structure: Any, measure: Callable[[torch.UntypedStorage], int]) -> None:
        for tensor in _pytree.tree_leaves(structure):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._known:
                    self._enter(storage, measure(storage))

    def _enter(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        self._live += size
        self._known[key] = weakref.finalize(storage, self._leave, key, size)
        self._known[key].atexit = False

    def _leave(self, key: int, size: int) -> None:
        self._known.pop(key, None)
        self._live -= size

    @staticmethod
    def _nothing(storage: torch.UntypedStorage) -> int:
        return 0

    @staticmethod
    def _bytes(storage: torch.UntypedStorage) -> int:
        return storage.nbytes()
