"""`LotPass`: how clipped sums are asked of the gradient engine: in which precision, over how many views.

The engine sees a module around the model, so that per-example gradients are of what is really trained on.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from dpexp import _validate
from dpexp.gradients import (
    Checked,
    ClipGroup,
    ClippedSum,
    Compiled,
    Loss,
    check_model,
    grouped_clipped_sum,
)
from dpexp.memory import Halving

__all__ = ["LotPass"]


@final
class LotPass:
    """Clipped sums of a model's loss.

    Args:
        model: Takes (B, …); must treat examples independently.
        loss: One value per example.
        autocast: Dtype of the layers that torch's autocast runs in lower precision, such as
            `torch.bfloat16`; None for none. Gradients at the layers' outputs are taken in that precision;
            norms, clipping and sums are in the parameters' own.
        views: K, where inputs are (B, K, …): K augmented views of each example, whose mean loss is the
            example's. Its gradient is then the mean over the views *before* it is clipped (De et al., 2022,
            arXiv 2204.13650), so that one example's share is still at most C. None for
            inputs (B, …).
        compiler: Backend of `torch.compile` for per-example gradients that are written out; None for
            book-keeping in one pass.

    Raises:
        UserError: The model, or a part of it, comes from `torch.compile`; or there is no such compiler.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        autocast: torch.dtype | None = None,
        views: int | None = None,
        compiler: str | None = None,
    ) -> None:
        _refuse_compiled(model)
        self._trained = _Named.around(model, autocast, views)
        self._tried = _Named.around(model, None, views)
        self._loss = loss if views is None else partial(_mean_over_views, loss, views)
        self._engine = None if compiler is None else Compiled(compiler)
        self._halving = Halving()

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup], physical_batch_size: int | None
    ) -> ClippedSum:
        """As `grouped_clipped_sum`; a surrounding autocast does not reach clipping.

        Where memory runs out, every sum of the lot is discarded and it is begun anew in smaller microbatches.
        """
        named, clipped = self._trained, self._trained.inner(groups)
        with torch.autocast(inputs.device.type, enabled=False):
            found = self._halving.run(
                partial(
                    grouped_clipped_sum,
                    named.module,
                    self._loss,
                    inputs,
                    targets,
                    clipped,
                    engine=self._engine,
                ),
                size=physical_batch_size,
                rows=len(inputs),
            )
        return replace(found, sums={named.outer(name): value for name, value in found.sums.items()})

    def check(self, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]) -> Checked:
        """The behavioural check in full precision: rounding would hide what it looks for."""
        named = self._tried
        clipped = named.inner(groups)
        return check_model(named.module, self._loss, inputs, targets, clipped, engine=self._engine)


def _refuse_compiled(model: nn.Module) -> None:
    """Dynamo takes the engine's own reading of the calls for a part of the model, and traces that instead."""
    for name, module in model.named_modules():
        if "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None:
            raise _validate.UserError(
                f"model: found {name or 'the model'} compiled by torch.compile, expected it as it is."
                "\nThe gradient engine reads each call that uses a parameter, and compiling hides them: "
                "torch.func would have to write out B gradients of all parameters. Leave out torch.compile; "
                "compile=inductor compiles that."
            )


@final
class _Named:
    """A module that holds the model, and the names of the model's parameters in it."""

    def __init__(self, module: nn.Module, prefix: str) -> None:
        self.module, self._prefix = module, prefix

    @classmethod
    def around(cls, model: nn.Module, autocast: torch.dtype | None, views: int | None) -> "_Named":
        if autocast is None and views is None:
            return cls(model, "")
        return cls(_Around(model, autocast, views), "model.")

    def inner(self, groups: Sequence[ClipGroup]) -> Sequence[ClipGroup]:
        return [
            replace(group, parameters=tuple(self._prefix + name for name in group.parameters))
            for group in groups
        ]

    def outer(self, name: str) -> str:
        return name.removeprefix(self._prefix)


@final
class _Around(nn.Module):
    def __init__(self, model: nn.Module, autocast: torch.dtype | None, views: int | None) -> None:
        super().__init__()
        self.model, self._autocast, self._views = model, autocast, views

    def forward(self, inputs: Tensor) -> Any:
        kind = inputs.device.type
        with nullcontext() if self._autocast is None else torch.autocast(kind, self._autocast):
            outputs = self.model(inputs if self._views is None else inputs.flatten(0, 1))
        return outputs if self._autocast is None else _pytree.tree_map_only(Tensor, _in_full, outputs)


def _in_full(output: Tensor) -> Tensor:
    """The loss is taken in float32."""
    return output.float() if output.dtype in (torch.bfloat16, torch.float16) else output


def _mean_over_views(loss: Loss, views: int, outputs: Tensor, targets: Tensor) -> Tensor:
    losses = loss(outputs, targets.repeat_interleave(views, dim=0))
    if losses.shape != (len(targets) * views,):
        return losses  # the engine refuses it, and says what it expected
    return losses.view(len(targets), views).mean(dim=1)
