"""Dropout held off, in every form, so that two forward passes can be compared."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dpexp import _validate
from dpexp.gradients.interception import Function, Interception, opened

__all__ = ["Calm", "calm_copy"]

_DROPOUTS = frozenset(
    {
        functional.dropout,
        functional.dropout1d,
        functional.dropout2d,
        functional.dropout3d,
        functional.alpha_dropout,
        functional.feature_alpha_dropout,
        torch.dropout,
        torch.alpha_dropout,
        torch.feature_dropout,
    }
)
_ATTENTION = functional.scaled_dot_product_attention


class Calm(Interception):
    """Makes dropout return its input, and attention drop nothing."""

    def observe(
        self, index: int, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Runs a call, if it is not dropout."""
        if function is torch.autograd.grad:
            with self:  # checkpoints are computed again within
                return opened(function)(*arguments, **keywords)
        if function in _DROPOUTS:
            return arguments[0] if arguments else keywords["input"]
        if function is _ATTENTION:
            arguments = [0.0 if i == 4 else argument for i, argument in enumerate(arguments)]
            keywords = {name: value for name, value in keywords.items() if name != "dropout_p"}
        return function(*arguments, **keywords)


def calm_copy(model: nn.Module) -> nn.Module:
    """A copy in training mode whose recurrent layers drop nothing between their layers."""
    try:
        trial = copy.deepcopy(model).train()
    except RuntimeError as error:
        raise _validate.UserError(
            f"model: cannot be copied, expected a module that copy.deepcopy takes: {error}"
            "\nOf weight norms and pruning, torch.nn.utils.parametrizations has forms that can be copied."
        ) from error
    for module in trial.modules():
        if isinstance(module, nn.RNNBase):
            module.dropout = 0.0
    return trial
