"""Clipped sums through `torch.compile`: per-example gradients of the whole model as one compiled graph."""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from dpexp import _validate
from dpexp.gradients.clipped import ClipGroup, ClippedSum, Loss
from dpexp.gradients.functional import clip, per_example_gradients

__all__ = ["Compiled"]

_SIZES = 100  # more than there are sizes of microbatches in 24 octaves

Gradients = Callable[[dict[str, Tensor], Tensor, Tensor], Any]


@final
class Compiled:
    """A gradient engine that writes out the gradients of a microbatch, compiled for few numbers of rows.

    Poisson lots have another size each time, and torch fixes sizes within `vmap`: a microbatch is filled up,
    with copies of its first row that count for nothing, to one of four sizes an octave.

    It needs B times the memory of the parameters, which one-pass book-keeping avoids, and is for models whose
    time goes into many small operations. docs/benchmarks.md says where it helps.

    Args:
        backend: One of torch's compilers, such as `inductor`.

    Raises:
        UserError: torch has no such backend.
    """

    def __init__(self, backend: str) -> None:
        known = [*torch.compiler.list_backends(), "aot_eager", "eager"]
        self.backend = _validate.one_of("compile", backend, known)
        self._kept: tuple[nn.Module, Loss, Gradients] | None = None

    def __call__(
        self, model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
    ) -> ClippedSum:
        """The clipped sums of one microbatch.

        Raises:
            UserError: The compiler does not take the model.
        """
        names = [name for group in groups for name in group.parameters]
        trained = {name: model.get_parameter(name).detach() for name in names}
        filled = [_filled_up(rows) for rows in (inputs, targets)]
        try:
            with torch._dynamo.config.patch(recompile_limit=_SIZES):
                gradients, losses = self._gradients(model, loss)(trained, *filled)
        except _validate.UserError:
            raise
        except _compiler_errors() as error:
            reason = str(error).strip().partition("\n")[0]
            raise _validate.UserError(
                f"compile: torch's {self.backend} does not take the model: {reason}"
                "\nExpected a model without data-dependent control flow and without random layers; set "
                "compile=null, for which any model will do."
            ) from error
        own = {name: gradient[: len(inputs)] for name, gradient in gradients.items()}
        return clip(groups, own, losses[: len(inputs)])

    def _gradients(self, model: nn.Module, loss: Loss) -> Gradients:
        kept = self._kept
        if kept is None or kept[0] is not model or kept[1] is not loss:
            whole = per_example_gradients(model, loss)
            kept = model, loss, torch.compile(whole, backend=self.backend, dynamic=False, fullgraph=True)
            self._kept = kept
        return kept[2]


def _filled_up(rows: Tensor) -> Tensor:
    """Rows (B, …), then copies of the first, up to the next size: 5, 6, 7, 8, 10, 12, 14, 16, 20 and on."""
    step = max(1, 2 ** (len(rows).bit_length() - 3))
    missing = -len(rows) % step
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])]) if missing else rows


def _compiler_errors() -> tuple[type[Exception], ...]:
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException  # heavy, and only needed here

    return TorchDynamoException, FailOnRecompileLimitHit
