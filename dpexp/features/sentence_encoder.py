"""BERT's encoder without its training heads, averaged over the tokens: sentence embeddings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, final

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MINILM", "EncoderSize", "SentenceEncoder"]

_EPSILON = 1e-12  # of the normalizations


@final
@dataclass(frozen=True, kw_only=True)
class EncoderSize:
    """How large an encoder is: token ids, most tokens of a text, values, heads, values between, layers."""

    vocabulary: int
    tokens: int
    width: int
    heads: int
    between: int
    layers: int


MINILM = EncoderSize(vocabulary=30522, tokens=512, width=384, heads=12, between=1536, layers=6)


@final
class SentenceEncoder(nn.Module):
    """Rows of token ids to the mean of their last layer over tokens that are not padding, at norm 1.

    Devlin et al. (2019), arXiv 1810.04805; Reimers and Gurevych (2019), arXiv 1908.10084.

    Args:
        size: How large it is.
    """

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.tokens, size.width)
        self.kinds = nn.Embedding(2, size.width)
        self.norm = nn.LayerNorm(size.width, eps=_EPSILON)
        self.layers = nn.ModuleList(_Layer(size) for _ in range(size.layers))

    def forward(self, rows: Tensor) -> Tensor:
        """Embeddings (n, width) of token ids (n, T), 0 for padding at the end."""
        present = rows != 0
        longest = max(1, int(present.sum(dim=1).max())) if len(rows) else 1
        rows, present = rows[:, :longest], present[:, :longest]
        hidden = self.norm(self.words(rows) + self.places.weight[:longest] + self.kinds.weight[0])
        seen = present.clone()
        seen[:, 0] = True  # softmax over nothing is NaN
        for layer in self.layers:
            hidden = layer(hidden, seen[:, None, None, :])
        weights = present.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        return functional.normalize(mean, dim=1)

    def load(self, tensors: Mapping[str, Tensor]) -> Self:
        """Itself, with the weights of a BERT model by the names they are published under, fixed.

        Raises:
            ValueError: A tensor is missing or has another shape.
        """
        missing = {theirs for theirs in self._names().values() if theirs not in tensors}
        if missing:
            raise ValueError(f"the weights lack {', '.join(sorted(missing))}")
        try:
            self.load_state_dict({ours: tensors[theirs] for ours, theirs in self._names().items()})
        except RuntimeError as error:
            raise ValueError(f"these weights are of another model: {error}") from error
        return self.requires_grad_(False)

    def _names(self) -> dict[str, str]:
        """The published name of each parameter."""
        return {name: _published(name) for name in self.state_dict()}


class _Layer(nn.Module):
    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        width = size.width
        self._heads = size.heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mixed, self.norm_mixed = nn.Linear(width, width), nn.LayerNorm(width, eps=_EPSILON)
        self.up, self.down = nn.Linear(width, size.between), nn.Linear(size.between, width)
        self.norm_down = nn.LayerNorm(width, eps=_EPSILON)

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        query, key, value = (self._split(layer(hidden)) for layer in (self.query, self.key, self.value))
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        hidden = self.norm_mixed(self.mixed(attended.transpose(1, 2).flatten(2)) + hidden)
        result: Tensor = self.norm_down(self.down(functional.gelu(self.up(hidden))) + hidden)
        return result

    def _split(self, values: Tensor) -> Tensor:
        return values.reshape(*values.shape[:2], self._heads, -1).transpose(1, 2)


_PUBLISHED = {
    "words": "embeddings.word_embeddings",
    "places": "embeddings.position_embeddings",
    "kinds": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "mixed": "attention.output.dense",
    "norm_mixed": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm_down": "output.LayerNorm",
}


def _published(name: str) -> str:
    """`layers.2.up.bias` as `encoder.layer.2.intermediate.dense.bias`, for example."""
    *where, module, kind = name.split(".")
    prefix = f"encoder.layer.{where[1]}." if where else ""
    return f"{prefix}{_PUBLISHED[module]}.{kind}"
