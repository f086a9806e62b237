"""A small transformer encoder for text."""

from typing import final

import torch
from torch import Tensor, nn

from dpexp import _validate
from dpexp.models.tokens import embedding, mean_of_tokens

__all__ = ["TextTransformer"]


@final
class TextTransformer(nn.Module):
    """Embedded tokens and places, pre-norm encoder layers without dropout, the mean, a linear layer.

    Vaswani et al. (2017), arXiv 1706.03762; normalization before each part: Xiong et al. (2020), arXiv
    2002.04745.

    Args:
        in_features: T, tokens per row.
        vocabulary: V, public: ids are 1 … V-1, and 0 for padding.
        out_features: Classes.
        width: d, values per vector.
        layers: Encoder layers.
        heads: Heads of attention; divides `width`.
    """

    def __init__(
        self,
        in_features: int,
        vocabulary: int,
        out_features: int,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        super().__init__()
        heads = _validate.integer("model.heads", heads, at_least=1)
        layers = _validate.integer("model.layers", layers, at_least=1)
        if _validate.integer("model.width", width, at_least=1) % heads:
            raise _validate.refuse("model.width", width, f"a multiple of model.heads = {heads}")
        self.tokens = embedding(vocabulary, width)
        self.places = nn.Parameter(0.02 * torch.randn(in_features, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, out_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) of ids (B, T)."""
        tokens = inputs.long()
        padding = tokens == 0
        # The first place is looked at even where the row is empty: softmax over nothing is NaN.
        padding = torch.cat([torch.zeros_like(padding[:, :1]), padding[:, 1:]], dim=1)
        hidden = self.tokens(tokens) + self.places
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=padding)
        logits: Tensor = self.output(mean_of_tokens(self.norm(hidden), tokens))
        return logits
