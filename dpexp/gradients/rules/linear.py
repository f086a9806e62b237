"""Linear layers over any leading dimensions, and matrix products with a parameter."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from dpexp.gradients.layout import Source
from dpexp.gradients.per_example import Outer, PerExample, Whole, norms_of
from dpexp.gradients.rules.product import product
from dpexp.gradients.rules.use import Finish, Saved, Use, positions

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
        if left.shape[1] == 1:
            return _without_positions(left.flatten(1), saved, weight_source, bias_source)
        if bias_source is not None:
            found[bias_source] = Whole(left.sum(dim=1))
        if weight_source is not None and saved is not None:
            found[weight_source] = product(left, positions(saved.tensor))
        return found

    return finish


def _without_positions(
    left: Tensor, saved: Saved | None, weight: Source | None, bias: Source | None
) -> Mapping[Source, PerExample]:
    norms = norms_of(left)  # of both the bias and the weight
    found: dict[Source, PerExample] = {} if bias is None else {bias: Whole(left, norms)}
    if weight is not None and saved is not None:
        found[weight] = Outer(left, saved.tensor.flatten(1), norms)
    return found


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
