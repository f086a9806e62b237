"""One forward pass, written down: which call used which parameter, and where its gradient will arrive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.utils import _pytree

from dpexp.gradients.batch import Batch
from dpexp.gradients.interception import Function, Interception, leaves_of, tensors_of
from dpexp.gradients.layout import Layout, Operation, Source, Unexpected
from dpexp.gradients.rows import order_of_dimensions
from dpexp.gradients.rules import RULES, Finish, Generic, Use, generic

__all__ = ["Call", "Recorder"]


@final
@dataclass(frozen=True)
class Call:
    """One call that uses sources.

    Attributes:
        operation: What the layout says of it.
        finish: Its rule.
        edges: Where the gradients of its outputs arrive.
        shapes: The outputs' shapes.
        inputs: The nodes at which its own part of the graph ends.
    """

    operation: Operation
    finish: Finish
    edges: Sequence[GradientEdge]
    shapes: Sequence[torch.Size]
    inputs: frozenset[Node]


@final
class Recorder(Interception):
    """Records the calls of a layout during one forward pass of a batch."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], layout: Layout, batch_size: int) -> None:
        super().__init__()
        self._layout, self._batch_size = layout, batch_size
        self._failed = False  # then the exception is on its way, and what unwinds only has to run
        self.recorded: dict[int, Call] = {}
        self.derived: dict[Source, Node] = {}  # nodes of what is computed from parameters alone
        self._tensors: dict[Source, Tensor] = dict(parameters.items())

    def observe(
        self, index: int, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Runs a call and keeps what its rule needs."""
        if self._failed:
            return function(*arguments, **keywords)
        self._failed = True  # until this call went as expected
        result = self._observed(index, function, arguments, keywords)
        self._failed = False
        return result

    def _observed(
        self, index: int, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        if index >= len(self._layout.functions) or function != self._layout.functions[index]:
            function(*arguments, **keywords)  # it may be the end of a `torch.no_grad()`
            raise Unexpected("the model calls other functions than before")
        order = self._layout.orders.get(index)
        if order is not None and order != order_of_dimensions(function, arguments, keywords):
            raise Unexpected("the model orders dimensions in another way than before")
        operation = self._layout.operations.get(index)
        if operation is None:
            result = function(*arguments, **keywords)
            self._expect_shapes(index, result)
            return result
        leaves = leaves_of((arguments, keywords))
        self._expect(operation, leaves)
        use = Use(operation, leaves)
        finish = self._rule(use, function, arguments, keywords)
        inputs = self._ends(leaves, operation)
        before = torch.get_rng_state() if isinstance(finish, Generic) else None
        result = function(*arguments, **keywords)
        if before is not None and not torch.equal(before, torch.get_rng_state()):
            raise Unexpected(f"{function.__name__} draws random numbers")
        if not operation.derives and len(operation.results) > 1:
            # One result may be made from another, as an LSTM's output from its state: copies keep apart the
            # gradients that arrive from outside.
            result = _pytree.tree_map_only(Tensor, Tensor.clone, result)
        self._record(
            index, Call(operation, finish, *self._outputs(operation, result, leaves), inputs), result
        )
        return result

    def finished(self) -> None:
        """Checks the number of calls."""
        if self._failed or self.calls != len(self._layout.functions):
            raise Unexpected("the model calls other functions than before")

    def _expect_shapes(self, index: int, result: Any) -> None:
        """Only the number of examples may change the shapes that a call reshapes them to."""
        expected = self._layout.reshaped.get(index)
        for shape, output in zip(expected or (), tensors_of(result), strict=False):
            same = len(shape) == output.ndim and all(
                size % self._batch_size == 0 if wanted is None else size == wanted
                for wanted, size in zip(shape, output.shape, strict=True)
            )
            if not same:
                raise Unexpected("the model reshapes examples in another way than before")

    def _expect(self, operation: Operation, leaves: Sequence[Any]) -> None:
        same = len(leaves) == len(operation.batches)
        if not same or any(leaves[i] is not self._tensors.get(s) for i, s in operation.sources.items()):
            raise Unexpected("the model calls other functions than before")
        for i, batch in operation.placed:
            self._expect_batch(leaves[i], batch)

    def _ends(self, leaves: Sequence[Any], operation: Operation) -> frozenset[Node]:
        # A parameter's own node ends the graph anyway.
        known = [self.derived[source] for source in operation.sources.values() if source in self.derived]
        others = [leaf for i, leaf in enumerate(leaves) if i not in operation.sources]
        return frozenset([*known, *(_node(leaf) for leaf in others if _differentiable(leaf))])

    def _expect_batch(self, value: Tensor, batch: Batch) -> None:
        if not batch.fits(value, self._batch_size):
            raise Unexpected("a batch dimension is not where it was")

    def _rule(
        self, use: Use, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Finish:
        rule = None if use.operation.derives else RULES.get(function)
        finish = None if rule is None else rule(use, *arguments, **keywords)
        return finish or generic(use, arguments, keywords)

    def _outputs(
        self, operation: Operation, result: Any, leaves: Sequence[Any]
    ) -> tuple[list[GradientEdge], list[torch.Size]]:
        outputs = tensors_of(result)
        for output, batch in zip(outputs, operation.results, strict=True):
            if batch is not None:
                self._expect_batch(output, batch)
        if not all(output.grad_fn is not None for output in outputs):
            raise Unexpected(f"{operation.function.__name__} gives a result without a gradient")
        stable = [_stable(output, leaves) for output in outputs]
        edges = [GradientEdge(_node(output), output.output_nr) for output in stable]
        return edges, [output.shape for output in outputs]

    def _record(self, index: int, call: Call, result: Any) -> None:
        self.recorded[index] = call
        if call.operation.derives:
            for i, output in enumerate(tensors_of(result)):
                self._tensors[index, i] = output
                self.derived[index, i] = call.edges[i].node


def _differentiable(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad


def _node(tensor: Tensor) -> Node:
    return tensor.grad_fn or get_gradient_edge(tensor).node


def _stable(output: Tensor, leaves: Sequence[Any]) -> Tensor:
    """The tensor whose place in the graph survives an activation that overwrites `output`.

    A linear layer over positions returns a view of its product; an in-place operation on the view gives it
    another node, while the product keeps its own.
    """
    base = output._base
    if base is None:
        return output
    known = {id(leaf) for leaf in leaves} | {id(leaf._base) for leaf in leaves if isinstance(leaf, Tensor)}
    if id(base) in known or base.numel() != output.numel() or base.grad_fn is None:
        return output
    return base if base.is_contiguous() and output.is_contiguous() else output
