"""The paper's network: fully connected layers with ReLU."""

import itertools
from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from dpexp import _validate

__all__ = ["MLP"]


@final
class MLP(nn.Module):
    """Linear layers with ReLU between them; parameters are named `hidden.<i>.…` and `output.…`.

    Abadi et al. (2016), section 5.2, use one hidden layer of 1000 units.

    Args:
        in_features: Input dimensions.
        hidden_units: Units of each hidden layer; empty gives a linear model.
        out_features: Classes.
    """

    def __init__(self, in_features: int, hidden_units: Sequence[int], out_features: int) -> None:
        super().__init__()
        if isinstance(hidden_units, str) or not isinstance(hidden_units, Sequence):
            raise _validate.refuse(
                "model.hidden_units", hidden_units, "a list of whole numbers, such as [100]"
            )
        sizes = [in_features, *hidden_units, out_features]
        for size in hidden_units:
            _validate.integer("model.hidden_units", size, at_least=1)
        pairs = list(itertools.pairwise(sizes))
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairs[:-1])
        self.output = nn.Linear(*pairs[-1])

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (B, out_features) of inputs (B, …), flattened."""
        features = inputs.flatten(1)
        for layer in self.hidden:
            features = layer(features).relu()
        logits: Tensor = self.output(features)
        return logits
