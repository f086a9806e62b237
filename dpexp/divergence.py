"""What is done when training leaves the numbers: the run stops."""

import math
from typing import Any, final

import pytorch_lightning as pl
from torch import nn

from dpexp import _validate
from dpexp.module import DPModule

__all__ = ["FiniteParameters"]


@final
class FiniteParameters(pl.Callback):
    """Stops a run whose parameters are no longer finite: what followed would cost privacy for nothing.

    The decision looks at released parameters only, so that stopping is post-processing. A lot all of whose
    gradients are NaN does not stop a run: its parameters move by noise alone, and nobody may tell.
    """

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Looks at the parameters after each step.

        Raises:
            UserError: A parameter is infinite or NaN.
        """
        assert isinstance(pl_module, DPModule)
        broken = _not_finite(pl_module.model)
        if broken is not None:
            raise _validate.UserError(_message(pl_module, broken))


def _not_finite(model: nn.Module) -> str | None:
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        # One pass without a mask; a sum may overflow where no value does.
        if not math.isfinite(float(values.sum())) and not values.isfinite().all():
            return name
    return None


def _message(module: DPModule, name: str) -> str:
    lots = module.ledger.lots
    spent = "" if module.ledger.account is None else f" ε = {module.ledger.epsilon().in_print} was spent."
    return (
        f"{name} is not finite after lot {lots} of {module.plan.steps}: training diverged and stops.{spent}"
        "\nLower optimizer.lr (or the start of its schedule): at each step the noise alone moves a parameter "
        "of plain SGD by η · σC/L."
    )
