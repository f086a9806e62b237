"""The behavioural check at the start: examples must not mix, and sums must equal the oracle's.

Type lists miss what a batch norm wears as a costume; behaviour does not. Only random rows are used,
never private ones, on a copy of the model.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpexp import _validate
from dpexp.gradients.clipped import ClipGroup, Loss
from dpexp.gradients.engine import grouped_clipped_sum
from dpexp.gradients.loop import loop

__all__ = ["check_model"]

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def check_model(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
) -> None:
    """Refuses a model whose per-example gradients depend on the other examples, or are wrong here.

    Args:
        model: The model in training mode; it is copied, and dropout in the copy is held off.
        loss: One value per example.
        inputs: Random rows of the declared shape and dtype, shape (B, …), B >= 2.
        targets: Random targets, shape (B, …).
        groups: The groups that will be clipped.

    Raises:
        UserError: Gradients in a batch differ from those of single examples, or a forward pass in
            training mode changes a buffer.
    """
    trial = _copy_without_dropout(model)
    buffers = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    batch = grouped_clipped_sum(trial, loss, inputs, targets, groups)
    trial(inputs)
    for name, buffer in trial.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise _validate.UserError(
                f"model: a forward pass in training mode changes the buffer {name}, expected none to change."
                "\nRunning statistics carry private data past the noise: use GroupNorm or LayerNorm."
            )
    singles = loop(trial, loss, inputs, targets, groups)
    _compare(batch.norms, singles.norms, "the norms of its per-example gradients")
    for name, total in batch.sums.items():
        _compare(total, singles.sums[name], f"the clipped sum of {name}")


def _copy_without_dropout(model: nn.Module) -> nn.Module:
    trial = copy.deepcopy(model).train()
    for module in trial.modules():
        if isinstance(module, _DROPOUT):
            module.eval()
    return trial


def _compare(found: Tensor, expected: Tensor, what: str) -> None:
    tolerance = 1e-3 * float(expected.abs().max()) + 1e-6
    if not torch.allclose(found, expected, rtol=1e-3, atol=tolerance):
        raise _validate.UserError(
            f"model: {what} differ in a batch from those of the examples alone, expected them to be equal."
            "\nA layer mixes the examples of a batch (batch normalization in some form?), so one example "
            "can reach others' gradients past its clip: use GroupNorm or LayerNorm."
        )
