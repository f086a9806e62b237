"""Any other function: `torch.func` for that one call."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from torch import Tensor
from torch.func import vjp, vmap
from torch.utils import _pytree

from dpexp.gradients.batch import Batch
from dpexp.gradients.interception import tensors_of
from dpexp.gradients.layout import Source, Unexpected
from dpexp.gradients.per_example import PerExample, Whole
from dpexp.gradients.quiet import without_cost_warnings
from dpexp.gradients.rules.use import Saved, Use
from dpexp.memory import is_out_of_memory

__all__ = ["Generic", "generic"]


def generic(use: Use, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> "Generic":
    """Keeps the arguments of a call and differentiates it again, example by example."""
    leaves, structure = _pytree.tree_flatten((tuple(arguments), dict(keywords)))
    kept = [use.save(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return Generic(use, kept, structure, _autocast(leaves))


@final
@dataclass(frozen=True)
class Generic:
    """One call of any function, to be differentiated with respect to its sources."""

    _use: Use
    _kept: Sequence[Any]
    _structure: Any
    _context: tuple[str, torch.dtype] | None

    def __call__(self, gradients: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        """From gradients at the outputs with a batch dimension each."""
        operation = self._use.operation
        leaves = [kept.raw if isinstance(kept, Saved) else kept for kept in self._kept]
        batches = {i: batch for i, batch in enumerate(operation.batches) if batch is not None}
        values = [batch.first(leaves[i]) for i, batch in batches.items()]
        slopes = [r.first(g) for g, r in zip(gradients, operation.results, strict=True) if r is not None]
        one = partial(self._one, leaves, batches)
        try:
            with without_cost_warnings():
                return self._sum(vmap(one)(values, slopes))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise  # smaller microbatches mend it
            name = operation.function.__name__  # it may hold B as a number: `token.repeat(B, 1, 1)`
            raise Unexpected(f"{name} cannot be differentiated for one example: {error}") from error

    def pull_back(self, gradients: Tensor, output: int) -> Mapping[Source, PerExample]:
        """From gradients (B, *shape) of a result that does not depend on the batch."""
        leaves = [kept.raw if isinstance(kept, Saved) else kept for kept in self._kept]
        pull = vjp(lambda *sources: self._call(leaves, sources)[output], *self._sources(leaves))[1]
        with without_cost_warnings():
            return self._sum(vmap(pull)(gradients))

    def _one(
        self,
        leaves: Sequence[Any],
        batches: Mapping[int, Batch],
        values: Sequence[Tensor],
        slopes: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """The gradients of one example, which the function sees as a batch of one."""
        leaves = list(leaves)
        for (i, batch), value in zip(batches.items(), values, strict=True):
            leaves[i] = batch.alone(value)
        results = zip(slopes, self._use.operation.results, strict=True)
        gradients = tuple(batch.alone(slope) for slope, batch in results if batch is not None)
        pull = vjp(lambda *sources: self._call(leaves, sources), *self._sources(leaves))[1]
        found: tuple[Tensor, ...] = pull(gradients)
        return found

    def _sources(self, leaves: Sequence[Any]) -> list[Tensor]:
        return [leaves[i] for i in self._use.operation.sources]

    def _call(self, leaves: Sequence[Any], sources: Sequence[Tensor]) -> tuple[Tensor, ...]:
        leaves = list(leaves)
        for i, source in zip(self._use.operation.sources, sources, strict=True):
            leaves[i] = source
        arguments, keywords = _pytree.tree_unflatten(leaves, self._structure)
        with _entered(self._context):
            return tuple(tensors_of(self._use.operation.function(*arguments, **keywords)))

    def _sum(self, found: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        sums: dict[Source, PerExample] = {}
        for source, values in zip(self._use.operation.sources.values(), found, strict=True):
            sums[source] = Whole(sums[source].whole() + values if source in sums else values)
        return sums


def _autocast(leaves: Sequence[Any]) -> tuple[str, torch.dtype] | None:
    device = next(leaf.device.type for leaf in leaves if isinstance(leaf, Tensor))
    enabled = torch.is_autocast_enabled(device)
    return (device, torch.get_autocast_dtype(device)) if enabled else None


def _entered(context: tuple[str, torch.dtype] | None) -> AbstractContextManager[Any]:
    return nullcontext() if context is None else torch.autocast(context[0], context[1])
