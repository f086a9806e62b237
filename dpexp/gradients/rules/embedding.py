"""Tables of which an example looks up few rows."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from dpexp.gradients.layout import Source
from dpexp.gradients.per_example import PerExample, Rows
from dpexp.gradients.rules.use import Finish, Use, positions

__all__ = ["embedding"]


def embedding(
    use: Use,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Finish | None:
    """Indices (B, …) into a table (V, d)."""
    source, batch = use.source(weight), use.batch(input)
    if source is None or batch is None or scale_grad_by_freq:
        return None
    saved, result, height = use.save(input), use.result, weight.shape[0]
    skipped = None if padding_idx is None else padding_idx % height

    def finish(gradients: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        indices = saved.tensor.flatten(1) if saved.tensor.ndim > 1 else saved.tensor[:, None]
        values = positions(result.first_in_full(gradients[0]))
        if skipped is not None:
            values = values.masked_fill((indices == skipped)[:, :, None], 0.0)
        return {source: Rows(indices, values, height)}

    return finish
