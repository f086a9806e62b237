"""A map of single rows that no private data went into: computed in parallel, with a progress bar."""

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from dpexp import __version__
from dpexp.features.cache import FeatureCache
from dpexp.features.features import Inputs

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PublicMap", "code_version"]

_CHUNK = 16  # rows at once in a thread: what their transforms need then stays in the processor's cache


@final
@dataclass(frozen=True, kw_only=True)
class PublicMap:
    """A fixed map of single rows.

    Attributes:
        name: For the progress bar, such as `scattering`.
        identity: All that decides what comes out, and nothing else.
        dimensions: Values per row that come out.
        make: Makes the map in torch, rows (n, *shape) to (n, dimensions); called only where rows are not
            found in the cache.
        cache: Where results are kept; None for nowhere.
    """

    name: str
    identity: str
    dimensions: int
    make: "Callable[[], nn.Module]"
    cache: FeatureCache | None

    @property
    def state(self) -> dict[str, NDArray[np.float32]]:
        """Nothing: the map is public."""
        return {}

    @property
    def nonprivate(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def transform(self, inputs: Inputs) -> Inputs:
        """Features of rows, shape (N, *shape) to (N, dimensions)."""
        if self.cache is None:
            return self._computed(inputs)
        identity = f"{self.identity} by {code_version()}"
        return self.cache.get(identity, inputs, (len(inputs), self.dimensions), self._computed)

    def as_layer(self) -> "nn.Module":
        """The map itself."""
        return self.make()

    def _computed(self, inputs: Inputs) -> Inputs:
        import torch

        result = np.empty((len(inputs), self.dimensions), dtype=np.float32)
        layer = self.make()

        def fill(start: int) -> None:
            with torch.no_grad():  # for this thread alone
                rows: torch.Tensor = layer(torch.tensor(inputs[start : start + _CHUNK]))
            result[start : start + _CHUNK] = rows.numpy()

        starts = range(0, len(inputs), _CHUNK)
        with _workers() as workers:
            done = workers.map(fill, starts)
            for _ in track(done, f"{self.name} of {len(inputs):,} rows", total=len(starts), transient=True):
                pass
        return result


@functools.cache
def code_version() -> str:
    """Changes with every version of what computes features."""
    import torch

    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"dpexp {__version__} {digest.hexdigest()}, torch {torch.__version__}, numpy {np.__version__}"


@contextmanager
def _workers() -> Iterator[ThreadPoolExecutor]:
    """One thread a core that torch may use, each of which computes alone: chunks are small."""
    import torch

    before = torch.get_num_threads()
    threads = max(
        1, min(before, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else before)
    )
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield workers
    finally:
        torch.set_num_threads(before)
