"""Linear layers over any leading dimensions, and matrix products with a parameter."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from dpexp.gradients.layout import Source
from dpexp.gradients.per_example import PerExample, Whole
from dpexp.gradients.rules.product import product
from dpexp.gradients.rules.use import Finish, Use, positions

__all__ = ["linear", "matmul"]


def linear(use: Use, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Finish | None:
    """Y = X Wᵀ + c: g_W = Σ_t b_t a_tᵀ and g_c = Σ_t b_t, with input a (B, …, in) and b (B, …, out)."""
    if use.batch(input) is None or weight.ndim != 2:
        return None
    weight_source, bias_source = use.source(weight), use.source(bias)
    saved = None if weight_source is None else use.save(input)
    result = use.result

    def finish(gradients: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        left = positions(result.first_in_full(gradients[0]))
        found: dict[Source, PerExample] = {}
        if bias_source is not None:
            found[bias_source] = Whole(left[:, 0] if left.shape[1] == 1 else left.sum(dim=1))
        if weight_source is not None and saved is not None:
            found[weight_source] = product(left, positions(saved.tensor))
        return found

    return finish


def matmul(use: Use, input: Tensor, other: Tensor) -> Finish | None:
    """Y = X W: g_W = Σ_t a_t b_tᵀ, with input a (B, …, in) and b (B, …, out)."""
    source = use.source(other)
    if source is None or use.batch(input) is None or other.ndim != 2:
        return None
    saved, result = use.save(input), use.result

    def finish(gradients: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        right = positions(result.first_in_full(gradients[0]))
        return {source: product(positions(saved.tensor), right)}

    return finish
