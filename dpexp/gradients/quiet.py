"""Silence about a cost that the plan states already."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_cost_warnings"]


@contextmanager
def without_cost_warnings() -> Iterator[None]:
    """Hides that `torch.func` walks through the examples of kernels it cannot batch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield
