"""Which calls of a forward pass use which parameters, and where the examples are, in each tensor and call.

A sequence as long as the batch, or a tensor in (T, B, d) order, would fool any guess from one shape. So the
model is run twice on rows of zeros with two batch sizes: the dimension that follows the batch size is the
batch. No private row is used, and the result is kept for later steps, which check it against what they see.
"""

import copy
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node
from torch.nn import functional

from dpexp import _validate
from dpexp.gradients.batch import Batch
from dpexp.gradients.interception import Function, Interception, leaves_of, tensors_of
from dpexp.gradients.rows import Seen, leaves_rows, order_of_dimensions, reshaped_to, varying

__all__ = ["Layout", "Operation", "Source", "Unexpected", "layout_of", "renewed_layout"]

Source = str | tuple[int, int]
"""A trained parameter's name, or (call, output) of a tensor computed from parameters alone."""


@dataclass(frozen=True)
class Operation:
    """One call that uses parameters.

    Attributes:
        function: What is called.
        sources: Source by position among the leaves of the arguments.
        batches: Where the examples are in each leaf of the arguments; None where they are not.
        results: The same for each tensor that it returns; all None if it is computed from parameters alone.
    """

    function: Function
    sources: Mapping[int, Source]
    batches: Sequence[Batch | None]
    results: Sequence[Batch | None]

    @cached_property
    def derives(self) -> bool:
        """Whether its results do not depend on the batch: they are parameters in another form."""
        return all(batch is None for batch in self.results)

    @cached_property
    def placed(self) -> Sequence[tuple[int, Batch]]:
        """The leaves of the arguments that have a batch, by position."""
        return [(i, batch) for i, batch in enumerate(self.batches) if batch is not None]


@dataclass(frozen=True)
class Layout:
    """What a forward pass calls, or the reason why nothing holds of it.

    Attributes:
        operations: The calls that use parameters, by number of call.
        functions: What is called, by number of call.
        orders: By number of call, the order that it brings dimensions into.
        reshaped: By number of call, the shapes it gives to tensors of examples; None for what follows B.
        rowwise: Whether no call can move an example to another row; else each pass has to prove it.
        reason: Why there is no such list; empty if there is.
    """

    operations: Mapping[int, Operation] = field(default_factory=dict)
    functions: Sequence[Function] = ()
    orders: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    reshaped: Mapping[int, Sequence[tuple[int | None, ...]]] = field(default_factory=dict)
    rowwise: bool = False
    reason: str = ""


class Unexpected(Exception):
    """A forward pass, or its graph, is not what the layout says: the parameter must go another way."""


class _Unclear(Exception):
    """The batch cannot be found in some tensor."""


_LAYOUTS: WeakKeyDictionary[nn.Module, dict[Any, Layout]] = WeakKeyDictionary()


def layout_of(model: nn.Module, inputs: Tensor, trained: Sequence[str]) -> Layout:
    """The layout for inputs like these (B, …); found once and kept as long as the model."""
    known, key = _LAYOUTS.setdefault(model, {}), _key(model, inputs, trained)
    if key not in known:
        known[key] = _find(model, inputs, trained)
    return known[key]


def renewed_layout(model: nn.Module, inputs: Tensor, trained: Sequence[str], reason: str) -> Layout:
    """The layout after one did not hold: another if the model has changed, or none, for that reason."""
    known, key = _LAYOUTS.setdefault(model, {}), _key(model, inputs, trained)
    found = _find(model, inputs, trained)
    known[key] = Layout(reason=reason) if found == known.get(key) else found
    return known[key]


def _key(model: nn.Module, inputs: Tensor, trained: Sequence[str]) -> Any:
    modes = tuple(module.training for module in model.modules())
    autocast = torch.is_autocast_enabled(inputs.device.type)
    return inputs.shape[1:], inputs.dtype, inputs.device, tuple(trained), modes, autocast


def _find(model: nn.Module, inputs: Tensor, trained: Sequence[str]) -> Layout:
    names = {id(model.get_parameter(name)): name for name in trained}
    try:
        return _Comparison(model, inputs, names).layout()
    except _Unclear as error:
        return Layout(reason=str(error))
    except _validate.UserError:
        raise
    except Exception as error:  # noqa: BLE001  (any model may fail on zeros; it is then trained another way)
        return Layout(reason=f"the model does not run on rows of zeros: {error}")


class _Trace(Interception):
    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self._names = names
        self.seen: list[Seen] = []  # holds every tensor, so that no id is used twice

    def observe(
        self, index: int, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        self._refuse_max_norm(function, arguments, keywords)
        leaves = leaves_of((arguments, keywords))
        shapes = [leaf.shape if isinstance(leaf, Tensor) else None for leaf in leaves]  # it may change them
        result = function(*arguments, **keywords)
        outputs = tensors_of(result)
        shapes += [output.shape for output in outputs]
        self.seen.append(Seen(function, arguments, keywords, leaves, outputs, shapes))
        return result

    def _refuse_max_norm(
        self, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> None:
        """It rewrites the rows that private examples look up; also those of a table that does not train."""
        place = {functional.embedding: 3, functional.embedding_bag: 4}.get(function)
        if place is None:
            return
        max_norm = keywords.get("max_norm", arguments[place] if len(arguments) > place else None)
        if max_norm is not None:
            table = self._names.get(
                id(keywords.get("weight", arguments[1] if len(arguments) > 1 else None)), ""
            )
            raise _validate.UserError(
                f"model: the embedding {table} has max_norm={max_norm}, expected None."
                "\nIt rewrites the rows that private examples look up, past clipping and noise."
            )


@dataclass(frozen=True)
class _Run:
    """The calls of one pass, the ids of the tensors that it began with, and what it returned."""

    seen: Sequence[Seen]
    known: Set[int]
    returned: Sequence[Tensor]


def _trace(model: nn.Module, inputs: Tensor) -> _Run:
    # Buffers and counters of the copy may change; the parameters are the model's own.
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    shared: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    trial = copy.deepcopy(model, shared)
    devices = [inputs.device] if inputs.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad(), _Trace(names) as trace:
        torch.manual_seed(0)  # dropout masks are then the same each time
        returned = tensors_of(trial(inputs))
    known = {id(inputs), *map(id, trial.parameters()), *map(id, trial.buffers())}
    return _Run(trace.seen, known, returned)


def _hides(root: Node) -> bool:
    """Whether a function with a backward pass of its own is below: it may return what another call made."""
    seen, stack = {root}, [root]
    while stack:
        node = stack.pop()
        if isinstance(node, BackwardCFunction):
            return True
        children = {child for child, _ in node.next_functions if child is not None} - seen
        seen |= children
        stack.extend(children)
    return False


class _Comparison:
    """Forward passes of two batch sizes side by side."""

    def __init__(self, model: nn.Module, inputs: Tensor, names: Mapping[int, str]) -> None:
        self._model, self._names = model, names
        self._rows = torch.zeros(3, *inputs.shape[1:], dtype=inputs.dtype, device=inputs.device)
        self._run = _trace(model, self._rows[:2])
        self._small, self._large = self._run.seen, _trace(model, self._rows).seen

    def layout(self) -> Layout:
        if [call.function for call in self._small] != [call.function for call in self._large]:
            raise _Unclear("the model calls other functions for another batch size")
        sources: dict[int, Source] = dict(self._names)
        operations = {}
        for index, call in enumerate(self._small):
            used = {i: sources[id(leaf)] for i, leaf in enumerate(call.leaves) if id(leaf) in sources}
            new = [output for output in call.outputs if output.requires_grad and id(output) not in sources]
            if not used or not new:
                continue
            operations[index] = operation = self._operation(index, used)
            if operation.derives:
                sources |= {id(output): (index, i) for i, output in enumerate(call.outputs)}
        orders = {
            index: order
            for index, call in enumerate(self._small)
            if (order := order_of_dimensions(call.function, call.arguments, call.keywords)) is not None
        }
        pairs = enumerate(zip(self._small, self._large, strict=True))
        shapes = {index: reshaped_to(*pair) for index, pair in pairs}
        reshaped = {index: own for index, own in shapes.items() if any(None in shape for shape in own)}
        functions = [call.function for call in self._small]
        return Layout(operations, functions, orders, reshaped, self._rowwise())

    def _rowwise(self) -> bool:
        """Whether every call is known to leave examples in their rows, and none was hidden.

        What no torch function sees (`autograd.Function`, `torch.ops`) gives a tensor that comes from nowhere.
        """
        known, folded = set(self._run.known), dict[int, int]()
        for small, large in zip(self._small, self._large, strict=True):
            for leaf, *shapes in zip(small.leaves, small.shapes, large.shapes, strict=False):
                of_examples = isinstance(leaf, Tensor) and (leaf.requires_grad or varying(*shapes))
                if of_examples and id(leaf) not in known:
                    return False
            if not leaves_rows(small, large, folded):
                return False
            known.update(map(id, small.outputs))
        nodes = [output.grad_fn for output in self._run.returned if output.grad_fn is not None]
        return all(id(output) in known for output in self._run.returned) and not any(map(_hides, nodes))

    def _operation(self, index: int, sources: Mapping[int, Source]) -> Operation:
        call, name = self._small[index], next(iter(sources.values()))
        if any(isinstance(tensor, Tensor) and tensor.is_complex() for tensor in call.tensors):
            raise _Unclear(f"a use of {name} is of complex numbers")
        leaves = [self._batch(index, i, name) for i in range(len(call.leaves))]
        results = [self._batch(index, -i, name) for i in range(len(call.outputs), 0, -1)]
        found = Operation(call.function, sources, leaves, results)
        if (found.derives and any(leaves)) or (not found.derives and not all(results)):
            raise _Unclear(f"a use of {name} has results without a batch dimension")
        return found

    def _batch(self, index: int, place: int, name: Source) -> Batch | None:
        small, large = (run[index].shapes[place] for run in (self._small, self._large))
        if small is None or large is None or small == large:
            return None
        pairs = list(zip(small, large, strict=True))
        dims = [dim for dim, (a, b) in enumerate(pairs) if a != b]
        fold = pairs[dims[0]][0] // 2
        if len(dims) != 1 or pairs[dims[0]] != (2 * fold, 3 * fold):
            raise _Unclear(f"a use of {name} folds the batch into another dimension")
        inner = fold > 1 and self._inner(index, place, dims[0], name)
        return Batch(dims[0], fold, inner)

    def _inner(self, index: int, place: int, dim: int, name: Source) -> bool:
        """Which entries of a folded dimension belong to the first example: those that it changes."""
        one, other = (run[index].tensors[place] for run in self._pair)
        changed = (one != other).movedim(dim, 0).flatten(1).any(dim=1)
        first = torch.tensor([True, False, False], device=changed.device)
        if torch.equal(changed, first.repeat_interleave(len(changed) // 3)):
            return False
        if torch.equal(changed, first.repeat(len(changed) // 3)):
            return True
        raise _Unclear(f"a use of {name} folds the batch into another dimension")

    @cached_property
    def _pair(self) -> tuple[Sequence[Seen], Sequence[Seen]]:
        """Two forward passes that differ in the first example."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            rows = torch.randn(3, *self._rows.shape[1:]) if self._rows.is_floating_point() else self._rows
        rows = rows.to(self._rows)
        others = rows.clone()
        others[0] = 1 - others[0]
        return _trace(self._model, rows).seen, _trace(self._model, others).seen
