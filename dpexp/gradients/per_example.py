"""Forms in which the per-example gradients of one parameter are held: whole, or as factors never multiplied.

All give their norms and their weighted sum. Books are kept of the factors, so that no second backward
pass is needed (Bu et al., 2023, "Differentially private optimization on large model at small cost",
arXiv 2210.00038v2).
"""

import math
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from dpexp.gradients.batch import in_full

__all__ = ["Factors", "Outer", "PerExample", "Rows", "Whole", "masked", "norms_of"]


_TINY = 1e-12
"""Norms below it may have lost squares to underflow in float32, of 10⁸ numbers at most."""

_WIDTH = 1024
"""Numbers squared and added at once in float32; more, all alike, are off by up to n·eps/64."""

_GRAM_ROWS = 64
"""Rows of a Gram matrix taken at once: fewer make slow matrix products."""

_LOST = 1.2e-38
"""More than what the square of a number that underflows in float32 would have been."""

_CANCELLED = 3 / (math.sqrt(8) * 64)
"""Where ‖g‖² is below this times (√out + √in + 1)·Σ_t ‖b_t‖²‖a_t‖², ‖g‖ may be off by more than 64 ulps.

A dot product of n terms is off by √n·u·‖x‖‖y‖ in mean square at most, where roundings are independent (Higham
and Mary, 2019, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41(5),
section 2; u = eps/2); so entry ts of the product of both Gram matrices is off by
(√out + √in + 1)·u·‖b_t‖‖a_t‖‖b_s‖‖a_s‖. These add up, each pair twice, to
√2·(√out + √in + 1)·u·Σ_t ‖b_t‖²‖a_t‖², of which three are allowed for. It may be 2·64·eps of ‖g‖², since
clipping raises norms by 64 ulps.
"""


class PerExample(Protocol):
    """The gradients g_i of one parameter, i in 1…B."""

    def norms(self) -> Tensor:
        """‖g_i‖, shape (B,), to a few ulps; ∞ where it is beyond the type."""
        ...

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Σ_i w_i g_i of weights (B,), of the parameter's shape; owned by the caller."""
        ...

    def without(self, dropped: Tensor) -> "PerExample":
        """The same with g_i = 0 where `dropped` (B,) is set, whatever numbers were there."""
        ...

    def whole(self) -> Tensor:
        """The gradients themselves, shape (B, *shape)."""
        ...


@final
@dataclass(frozen=True)
class Whole:
    """Gradients written out.

    Attributes:
        values: Shape (B, *shape).
        known: ‖g_i‖ (B,) where it is known already.
    """

    values: Tensor
    known: Tensor | None = None

    def norms(self) -> Tensor:
        """‖g_i‖, shape (B,)."""
        return norms_of(self.values) if self.known is None else self.known

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Σ_i w_i g_i."""
        values = self.values.to(weights.dtype)
        total = weights @ values.reshape(len(values), -1)
        return total.view(values.shape[1:])

    def without(self, dropped: Tensor) -> "Whole":
        """Zeroes the rows."""
        return Whole(masked(self.values, dropped))

    def whole(self) -> Tensor:
        """The values."""
        return self.values


@final
@dataclass(frozen=True)
class Outer:
    """g_i = b_i a_iᵀ, a linear layer without positions.

    ‖g_i‖ = ‖b_i‖·‖a_i‖ (Goodfellow 2015, arXiv 1510.01799v2, section 4), and Σ_i w_i g_i = Bᵀ (w·A).

    Attributes:
        left: b, shape (B, out).
        right: a, shape (B, in).
        left_norms: ‖b_i‖ (B,) where it is known already.
    """

    left: Tensor
    right: Tensor
    left_norms: Tensor | None = None

    def norms(self) -> Tensor:
        """‖b_i‖·‖a_i‖, shape (B,)."""
        left = norms_of(self.left) if self.left_norms is None else self.left_norms
        return left * norms_of(self.right)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One matrix product; the narrower factor takes the weights."""
        return _weighted_product(self.left, self.right, weights[:, None])

    def without(self, dropped: Tensor) -> "Outer":
        """Zeroes the rows of both factors."""
        return Outer(masked(self.left, dropped), masked(self.right, dropped))

    def whole(self) -> Tensor:
        """The outer products, shape (B, out, in)."""
        return self.left[:, :, None] * self.right[:, None, :]


@final
@dataclass(frozen=True)
class Factors:
    """g_i = Σ_t b_it a_itᵀ, a linear layer over T positions.

    ‖g_i‖² = Σ_ts (b_it·b_is)(a_it·a_is): two Gram matrices of T² instead of a gradient of in·out numbers
    (Li et al., 2022, "Large language models can be strong differentially private learners",
    arXiv 2110.05679v6, section 4).

    Attributes:
        left: b, shape (B, T, out).
        right: a, shape (B, T, in).
    """

    left: Tensor
    right: Tensor

    def norms(self) -> Tensor:
        """The Gram form."""
        return self.squares().sqrt().to(self.left.dtype)

    def squares(self) -> Tensor:
        """‖g_i‖², shape (B,), in float64; calculated there too where rounding or underflow would show."""
        gram = _Gram.of(self.left, self.right)
        if self.left.dtype == torch.float64:
            return gram.total
        widths = math.sqrt(self.left.shape[2]) + math.sqrt(self.right.shape[2])
        doubtful = (gram.total < _CANCELLED * (widths + 1) * gram.diagonal) | (gram.total < self._lost(gram))
        if doubtful.any():
            again = _Gram.of(self.left[doubtful].double(), self.right[doubtful].double())
            gram.total[doubtful] = again.total
        return gram.total

    def _lost(self, gram: "_Gram") -> Tensor:
        """10⁸ times what the squares at positions with a tiny factor can come to at most, shape (B,)."""
        tiny = torch.minimum(gram.left, gram.right) < _TINY**2
        left, right = gram.left + self.left.shape[2] * _LOST, gram.right + self.right.shape[2] * _LOST
        return 1e8 * torch.where(tiny, left * right, 0.0).sum(dim=1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One matrix product over examples and positions."""
        rows = weights.repeat_interleave(self.left.shape[1])[:, None]
        return _weighted_product(self.left.flatten(0, 1), self.right.flatten(0, 1), rows)

    def without(self, dropped: Tensor) -> "Factors":
        """Zeroes the rows of both factors."""
        return Factors(masked(self.left, dropped), masked(self.right, dropped))

    def whole(self) -> Tensor:
        """The products, shape (B, out, in)."""
        return self.left.mT @ self.right

    def double(self) -> "Factors":
        """In float64."""
        return Factors(self.left.double(), self.right.double())


@final
@dataclass(frozen=True)
class Rows:
    """Gradients with few rows, of a table of which example i looks up T rows.

    Attributes:
        indices: Rows looked up, shape (B, T).
        values: Gradients at the rows, shape (B, T, d); equal indices add up.
        height: Rows of the table.
    """

    indices: Tensor
    values: Tensor
    height: int

    def norms(self) -> Tensor:
        """Rows that an example looks up twice are added before they are squared."""
        order = self.indices.argsort(dim=1)
        indices = self.indices.gather(1, order)
        starts = torch.ones_like(indices)
        starts[:, 1:] = indices[:, 1:] != indices[:, :-1]
        slots = (starts.cumsum(dim=1) - 1)[:, :, None].expand_as(self.values)
        values = self.values.gather(1, order[:, :, None].expand_as(self.values))
        return norms_of(torch.zeros_like(values).scatter_add_(1, slots, values))

    def squares(self) -> Tensor:
        """‖g_i‖², shape (B,), in float64."""
        return self.norms().double().square_()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Only the rows that were looked up are touched."""
        total = self.values.new_zeros(self.height, self.values.shape[2])
        weighted = (self.values * weights[:, None, None]).flatten(0, 1).to(self.values.dtype)
        return total.index_add_(0, self.indices.flatten(), weighted)

    def without(self, dropped: Tensor) -> "Rows":
        """Zeroes the values."""
        return Rows(self.indices, masked(self.values, dropped), self.height)

    def whole(self) -> Tensor:
        """The table of each example, shape (B, height, d): large."""
        return self.added_to(self.values.new_zeros(len(self.values), self.height, self.values.shape[2]))

    def double(self) -> "Rows":
        """In float64."""
        return Rows(self.indices, self.values.double(), self.height)

    def added_to(self, tables: Tensor) -> Tensor:
        """Adds the rows to tables (B, height, d) in place."""
        return tables.scatter_add_(1, self.indices[:, :, None].expand_as(self.values), self.values)


def norms_of(values: Tensor) -> Tensor:
    """L2 norm of each row of values (B, …), shape (B,), in float32 at least; one pass, nothing written.

    Long rows are taken in parts, whose norms are added up in float64. Squares of small numbers underflow in
    float32, and a norm of 0 clips nothing: rows whose norm comes out tiny are taken again in float64.
    """
    rows = in_full(values if values.ndim == 2 else values.reshape(len(values), -1))
    norms = _in_parts(rows) if rows.shape[1] > _WIDTH else torch.linalg.vector_norm(rows, dim=1)
    if not norms.min().item() >= _TINY:  # which NaN is not
        exact = torch.linalg.vector_norm(rows.double(), dim=1).to(norms.dtype)
        norms = torch.where(norms < _TINY, exact, norms)
    return norms


def _in_parts(rows: Tensor) -> Tensor:
    end = rows.shape[1] // _WIDTH * _WIDTH
    parts = torch.linalg.vector_norm(rows[:, :end].view(len(rows), -1, _WIDTH), dim=2)
    rest = torch.linalg.vector_norm(rows[:, end:], dim=1)[:, None]
    together: Tensor = torch.linalg.vector_norm(torch.cat([parts, rest], dim=1).double(), dim=1)
    return together.to(rows.dtype)


@final
@dataclass(frozen=True)
class _Gram:
    """Both Gram matrices, in what is kept of them.

    Attributes:
        total: Σ_ts (b_t·b_s)(a_t·a_s), shape (B,), in float64.
        left: ‖b_t‖², shape (B, T), in float64.
        right: ‖a_t‖², shape (B, T), in float64.
    """

    total: Tensor
    left: Tensor
    right: Tensor

    @property
    def diagonal(self) -> Tensor:
        """Σ_t ‖b_t‖²‖a_t‖², shape (B,)."""
        return (self.left * self.right).sum(dim=1)

    @classmethod
    def of(cls, left: Tensor, right: Tensor) -> "_Gram":
        """Of factors (B, T, out) and (B, T, in); symmetry saves almost half of the work."""
        length = left.shape[1]
        step = max(_GRAM_ROWS, length // 4)
        totals, own = [], []
        for start in range(0, length, step):
            rows, before = slice(start, start + step), slice(0, start + step)
            pair = [factor[:, rows] @ factor[:, before].mT for factor in (left, right)]
            own.append([matrix[:, :, start:].diagonal(dim1=1, dim2=2).double() for matrix in pair])
            products = pair[0].mul_(pair[1])
            products[:, :, :start].mul_(2)
            totals.append(products.sum(dim=(1, 2), dtype=torch.float64))
        # Rounding cannot make the total negative.
        total = torch.stack(totals).sum(dim=0).clamp(min=0.0)
        return cls(total, *(torch.cat(parts, dim=1) for parts in zip(*own, strict=True)))


def _weighted_product(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    weights = weights.to(left.dtype)
    if left.shape[1] < right.shape[1]:
        return (left * weights).T @ right
    return left.T @ (right * weights)


def masked(values: Tensor, dropped: Tensor) -> Tensor:
    """Values (B, …) with 0 where `dropped` (B,) is set."""
    return values.masked_fill(dropped.view(-1, *[1] * (values.ndim - 1)), 0.0)
