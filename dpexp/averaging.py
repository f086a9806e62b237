"""An exponential moving average of the weights: post-processing of what is released, and so free."""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

__all__ = ["WeightAverage"]


@final
class WeightAverage(AveragedModel):
    """θ̄ ← β_t θ̄ + (1-β_t) θ after every step, from the first released parameters on.

    β_t = min(β, (1+t)/(10+t)) after t averaged steps: an average with β near 1 would otherwise hold on to
    the first of a short run's parameters (the rule of TensorFlow's `ExponentialMovingAverage`).

    Args:
        model: The model that trains; its values are copied.
        decay: β in [0, 1).
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        super().__init__(model, multi_avg_fn=_moving_average(decay))
        self.requires_grad_(False)


def _moving_average(decay: float) -> Callable[[Any, Any, Any], None]:
    @torch.no_grad()
    def update(averages: list[Tensor], current: list[Tensor], steps: Tensor | int) -> None:
        t = int(steps)
        beta = min(decay, (1 + t) / (10 + t))
        torch._foreach_lerp_(averages, current, 1 - beta)

    return update
