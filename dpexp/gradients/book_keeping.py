"""Clipped sums by one backward pass that visits only the outputs of layers that train.

The gradients at the outputs are asked for, never those of the weights; each layer's rule turns them into
per-example gradients or their factors as they arrive, and lets go of what it no longer needs.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import final

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from dpexp.gradients.backward import Place, Sketches, backward, unlike_weights
from dpexp.gradients.batch import in_full
from dpexp.gradients.clipped import (
    ClipGroup,
    ClippedSum,
    Loss,
    of_finite_losses,
    per_example_losses,
    together,
    weights_of,
)
from dpexp.gradients.graph import Graph
from dpexp.gradients.layout import Layout, Source, Unexpected
from dpexp.gradients.per_example import PerExample
from dpexp.gradients.recorder import Recorder
from dpexp.gradients.rules import Generic
from dpexp.gradients.total import total
from dpexp.memory import is_out_of_memory

__all__ = ["book_keeping"]


def book_keeping(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    groups: Sequence[ClipGroup],
    layout: Layout,
    parameters: Mapping[str, nn.Parameter],
) -> ClippedSum:
    """The clipped sums of one microbatch.

    Raises:
        Unexpected: The layout does not hold for this forward pass.
    """
    with Recorder(parameters, layout, len(inputs)) as recorder:
        outputs = model(inputs)
    recorder.finished()
    losses = per_example_losses(loss(outputs, targets), len(inputs))
    del outputs
    device = inputs.device.type
    with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
        found = _differentiate(losses, recorder, parameters, layout.rowwise)
        return _clip(groups, found, losses.detach(), parameters)


def _differentiate(
    losses: Tensor, recorder: Recorder, parameters: Mapping[str, nn.Parameter], rowwise: bool
) -> Mapping[Source, PerExample]:
    if losses.grad_fn is None:
        return {}
    graph = Graph(losses.grad_fn)
    leaves: Mapping[Source, Node | None] = {
        name: graph.leaf(parameter) for name, parameter in parameters.items()
    }
    graph.prove(recorder.recorded.values(), {**leaves, **recorder.derived})
    places = _places(recorder, graph)
    books = _Books(recorder, graph)
    if rowwise:
        backward(losses, torch.ones_like(losses), graph, places, books.enter)
        return books.close()
    sketches = Sketches()

    def enter(place: Place, gradient: Tensor) -> None:
        sketches.note(place, gradient)
        books.enter(place, gradient)

    backward(losses, torch.ones_like(losses), graph, places, enter, keep=True)
    _prove(losses, graph, places, sketches)
    return books.close()


def _prove(losses: Tensor, graph: Graph, places: Sequence[Place], sketches: Sketches) -> None:
    """A second backward pass, in which every loss has a weight of its own."""
    weighted, weights = Sketches(sketches.seed), unlike_weights(losses)
    try:
        backward(losses, weights, graph, places, weighted.note)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise Unexpected(f"the model cannot be differentiated twice: {error}") from error
    sketches.prove(weighted, weights)


def _places(recorder: Recorder, graph: Graph) -> list[Place]:
    """The results on which the losses depend, of calls that see examples."""
    return [
        Place(index, i, edge, call.shapes[i], batch)
        for index, call in recorder.recorded.items()
        for i, (edge, batch) in enumerate(zip(call.edges, call.operation.results, strict=True))
        if batch is not None and graph.reaches(edge.node)
    ]


@final
class _Books:
    """Per-example gradients by source, entered as gradients at outputs arrive."""

    def __init__(self, recorder: Recorder, graph: Graph) -> None:
        self._calls = {
            index: call
            for index, call in recorder.recorded.items()
            if any(graph.reaches(edge.node) for edge in call.edges)
        }
        recorder.recorded.clear()  # this book is now the only one that holds what the rules have kept
        self._entries: dict[Source, list[PerExample]] = {}
        self._arrived: dict[int, dict[int, Tensor]] = {}
        self._expected = Counter(
            {
                index: sum(graph.reaches(edge.node) for edge in call.edges)
                for index, call in self._calls.items()
            }
        )

    def close(self) -> Mapping[Source, PerExample]:
        """The sum of the entries of each source; those of derived tensors go to what they derive from."""
        for index in sorted(self._calls, reverse=True):
            call = self._calls[index]
            if call.operation.derives:
                assert isinstance(call.finish, Generic)
                for i in range(len(call.edges)):
                    entries = self._entries.pop((index, i), None)
                    if entries is not None:
                        self._post(call.finish.pull_back(total(entries).whole(), i))
        return {source: total(entries) for source, entries in self._entries.items()}

    def enter(self, place: Place, gradient: Tensor) -> None:
        """The gradient at one result of a call; with its last, the call's rule is applied."""
        call = self._calls[place.index]
        arrived = self._arrived.setdefault(place.index, {})
        arrived[place.output] = gradient
        if len(arrived) < self._expected[place.index]:
            return
        full = self._arrived.pop(place.index)
        gradients = [
            full[i] if i in full else gradient.new_zeros(shape) for i, shape in enumerate(call.shapes)
        ]
        self._post(call.finish(gradients))
        del self._calls[place.index]  # and what its rule has kept

    def _post(self, entries: Mapping[Source, PerExample]) -> None:
        for source, entry in entries.items():
            self._entries.setdefault(source, []).append(entry)


def _clip(
    groups: Sequence[ClipGroup],
    found: Mapping[Source, PerExample],
    losses: Tensor,
    parameters: Mapping[str, nn.Parameter],
) -> ClippedSum:
    own = [of_finite_losses(_norms(group, found, losses), losses) for group in groups]
    weights, norms = weights_of(groups, own), torch.stack(own)
    if not math.isfinite(norms.sum().item()):  # 0 · ∞ is NaN: the numbers must go, not only their weights
        dropped = ~norms.isfinite().all(dim=0)
        found = {source: entry.without(dropped) for source, entry in found.items()}
    sums = {
        name: _sum(found.get(name), weight, parameters[name])
        for group, weight in zip(groups, weights, strict=True)
        for name in group.parameters
    }
    return ClippedSum(sums=sums, norms=norms, losses=losses)


def _norms(group: ClipGroup, found: Mapping[Source, PerExample], losses: Tensor) -> Tensor:
    norms = [found[name].norms() for name in group.parameters if name in found]
    return together(norms) if norms else torch.zeros_like(in_full(losses))


def _sum(entry: PerExample | None, weights: Tensor, parameter: nn.Parameter) -> Tensor:
    if entry is None:
        return torch.zeros_like(in_full(parameter)).detach()
    return entry.weighted_sum(weights).to(torch.promote_types(parameter.dtype, torch.float32))
