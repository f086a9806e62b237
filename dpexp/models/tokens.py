"""Rows of token ids: 0 is padding, 1 … V-1 are tokens."""

from typing import Any

from torch import Tensor, nn

from dpexp import _validate

__all__ = ["embedding", "mean_of_tokens"]


def embedding(vocabulary: Any, width: int) -> nn.Embedding:
    """The table of V vectors; padding has the vector 0 and does not train.

    Raises:
        UserError: The data set has no vocabulary.
    """
    hint = "This network takes rows of token ids: choose a data set that declares its vocabulary."
    size = _validate.integer("model.vocabulary", vocabulary, at_least=2, hint=hint)
    return nn.Embedding(size, _validate.integer("model.width", width, at_least=1), padding_idx=0)


def mean_of_tokens(hidden: Tensor, tokens: Tensor) -> Tensor:
    """The mean over places that are not padding: (B, T, D) to (B, D); 0 where all are."""
    present = (tokens != 0).unsqueeze(-1).to(hidden.dtype)
    return (hidden * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)
