"""The gradients of a parameter that is used several times: sums over uses, in factors where they can be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from dpexp.gradients.per_example import Factors, Outer, PerExample, Rows, Whole
from dpexp.gradients.rules.product import product

__all__ = ["total"]


def total(terms: Sequence[PerExample]) -> PerExample:
    """g_i is the sum over the uses. Uses by linear layers are positions of one, in any order."""
    if len(terms) == 1:
        return terms[0]
    linear = [term for term in terms if isinstance(term, Outer | Factors)]
    rows = [term for term in terms if isinstance(term, Rows)]
    others = [term for term in terms if not isinstance(term, Outer | Factors | Rows)]
    if rows and not others:
        return _Mixed([*rows, *([_joined(linear)] if linear else [])])
    if len(linear) > 1:
        return total([product(*_factors(_joined(linear))), *rows, *others])
    values = terms[0].whole()
    for term in terms[1:]:
        values = values + term.whole()
    return Whole(values)


def _joined(terms: Sequence[Outer | Factors]) -> Factors:
    pairs = [_factors(term) for term in terms]
    left, right = (torch.cat(factors, dim=1) for factors in zip(*pairs, strict=True))
    return Factors(left, right)


def _factors(term: Outer | Factors) -> tuple[Tensor, Tensor]:
    """Left (B, T, out) and right (B, T, in)."""
    return (term.left, term.right) if isinstance(term, Factors) else (term.left[:, None], term.right[:, None])


@final
@dataclass(frozen=True)
class _Mixed:
    """A sum of terms in factors: the squared norm has their inner products too.

    Attributes:
        terms: `Rows`, and `Factors` with the table's rows on their left.
    """

    terms: Sequence[Factors | Rows]

    def norms(self) -> Tensor:
        terms = [term.double() for term in self.terms]  # between them anything may cancel
        squares = [term.squares() for term in terms]
        pairs = [(a, b) for i, a in enumerate(terms) for b in terms[i + 1 :]]
        total = torch.stack([*squares, *(2 * _inner(a, b) for a, b in pairs)]).sum(dim=0).clamp(min=0.0)
        return total.sqrt_().to(self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        term = self.terms[0]
        return (term.values if isinstance(term, Rows) else term.left).dtype

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return torch.stack([term.weighted_sum(weights) for term in self.terms]).sum(dim=0)

    def without(self, dropped: Tensor) -> "_Mixed":
        return _Mixed([term.without(dropped) for term in self.terms])

    def whole(self) -> Tensor:
        return torch.stack([term.whole() for term in self.terms]).sum(dim=0)


def _inner(a: Factors | Rows, b: Factors | Rows) -> Tensor:
    """⟨Σ_t l_t r_tᵀ, Σ_s l'_s r'_sᵀ⟩ = Σ_ts (l_t·l'_s)(r_t·r'_s); a row index is a unit vector."""
    if isinstance(a, Rows) and isinstance(b, Rows):
        left = (a.indices[:, :, None] == b.indices[:, None, :]).to(a.values.dtype)
        return (left * (a.values @ b.values.mT)).sum(dim=(1, 2))
    if isinstance(a, Rows):
        return _inner(b, a)
    if isinstance(b, Rows):
        left = a.left.gather(2, b.indices[:, None, :].expand(-1, a.left.shape[1], -1))
        return (left * (a.right @ b.values.mT)).sum(dim=(1, 2))
    return ((a.left @ b.left.mT) * (a.right @ b.right.mT)).sum(dim=(1, 2))
