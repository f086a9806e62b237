"""A bag of embeddings for text: the order of the tokens does not matter."""

from typing import final

from torch import Tensor, nn

from dpexp.models.tokens import embedding, mean_of_tokens

__all__ = ["TextBag"]


@final
class TextBag(nn.Module):
    """The mean of the tokens' vectors, then a linear layer: fastText's classifier.

    Joulin et al. (2017), "Bag of tricks for efficient text classification", arXiv 1607.01759.

    Args:
        vocabulary: V, public: ids are 1 … V-1, and 0 for padding.
        width: Values per vector.
        out_features: Classes.
    """

    def __init__(self, vocabulary: int, width: int, out_features: int) -> None:
        super().__init__()
        self.tokens = embedding(vocabulary, width)
        self.output = nn.Linear(width, out_features)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) of ids (B, T)."""
        tokens = inputs.long()
        logits: Tensor = self.output(mean_of_tokens(self.tokens(tokens), tokens))
        return logits
