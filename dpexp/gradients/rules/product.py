"""Sums of outer products over positions: whole or in factors, by cost."""

from math import ceil

import torch
from torch import Tensor

from dpexp.gradients.per_example import Factors, Outer, PerExample, Whole, norms_of

__all__ = ["WRITE", "chunks", "product", "writing_pays"]

WRITE = 17
"""Multiply-adds that take as long as writing a number and reading it twice (0.02 and 0.35 ns)."""

_ROOM = 1.2
"""A whole gradient may take this many times the room of its factors, which it replaces."""

_IN_CACHE = 2**20
"""Numbers worked on at once: 4 MB, which the last cache holds; a quarter is 2 to 4 % slower on two cores."""


def product(left: Tensor, right: Tensor) -> PerExample:
    """Σ_t l_t r_tᵀ of factors (B, T, out) and (B, T, in), in the cheaper form."""
    if left.shape[1] == 1:
        return Outer(left.flatten(1), right.flatten(1))
    if not writing_pays(left.shape[1], left.shape[2], right.shape[2]):
        return Factors(left, right)
    values = left.new_empty(len(left), left.shape[2], right.shape[2])
    norms = left.new_empty(len(left))
    for rows in chunks(len(left), values[:1].numel()):
        torch.bmm(left[rows].mT, right[rows], out=values[rows])
        norms[rows] = norms_of(values[rows])
    return Whole(values, norms)


def writing_pays(length: int, out_features: int, in_features: int) -> bool:
    """Whether to write an example's gradient of in·out numbers, rather than two Gram matrices of T².

    A function of shapes only, so that the same run gives the same bits on every machine.
    """
    size, width = out_features * in_features, out_features + in_features
    return size * WRITE < length**2 * width and size < _ROOM * length * width


def chunks(rows: int, numbers_per_row: int, *, at_least: int = 1) -> list[slice]:
    """Slices of at most one row more than the cache holds; `at_least` so many, if there are as many rows."""
    step = min(ceil(_IN_CACHE / max(1, numbers_per_row)), max(1, rows // at_least))
    return [slice(start, start + step) for start in range(0, rows, step)]
