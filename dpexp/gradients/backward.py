"""A backward pass that visits only the results of recorded calls, and the proof that each has its own row."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import final

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from dpexp.gradients.batch import Batch
from dpexp.gradients.graph import Graph
from dpexp.gradients.layout import Unexpected

__all__ = ["Place", "Receive", "Sketches", "backward", "unlike_weights"]

_OCTAVES = 48
_CLOSE = 1e-2  # other examples' weights are off by a factor of two at least
_NOTHING = 1e-30  # below it, float32 rounds by more than that


@final
@dataclass(frozen=True)
class Place:
    """Where the gradient of one result of a recorded call arrives.

    Attributes:
        index: Number of the call.
        output: Number of the result.
        edge: The place in the graph.
        shape: Of the result.
        batch: Where its examples are.
    """

    index: int
    output: int
    edge: GradientEdge
    shape: torch.Size
    batch: Batch


Receive = Callable[[Place, Tensor], None]
"""Takes a gradient as it arrives, in the shape of its result."""


def backward(
    losses: Tensor,
    weights: Tensor,
    graph: Graph,
    places: Sequence[Place],
    receive: Receive,
    *,
    keep: bool = False,
) -> None:
    """One backward pass of Σ_i w_i ℓ_i, down to the lowest places; `keep` the graph for another."""
    lowest = graph.lowest({place.edge.node for place in places})
    ends = [place for place in places if place.edge.node in lowest]
    handles = [
        place.edge.node.register_prehook(partial(_arrive, receive, place))
        for place in places
        if place.edge.node not in lowest
    ]
    try:
        edges = [place.edge for place in ends]
        found = torch.autograd.grad(losses, edges, weights, retain_graph=keep) if edges else ()
    finally:
        for handle in handles:
            handle.remove()
    for place, gradient in zip(ends, found, strict=True):
        receive(place, gradient.view(place.shape))


def _arrive(receive: Receive, place: Place, gradients: tuple[Tensor | None, ...]) -> None:
    gradient = gradients[place.edge.output_nr]
    if gradient is not None:
        receive(place, gradient.view(place.shape))


def unlike_weights(losses: Tensor) -> Tensor:
    """Powers of two, (B,), by which a backward pass scales exactly; two are alike once in 48 times."""
    generator = torch.Generator().manual_seed(secrets.randbits(63))  # torch's own draws are the model's
    octaves = torch.randint(_OCTAVES, (len(losses),), generator=generator)
    return torch.exp2(octaves.to(losses))


@final
@dataclass
class Sketches:
    """Two numbers of each row of each gradient, (2, B) in float64, by call and result: both scale exactly.

    The largest entry finds what is large, and a sum with random signs whatever is linear in the row.
    """

    seed: int = field(default_factory=lambda: secrets.randbits(63))
    rows: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def note(self, place: Place, gradient: Tensor) -> None:
        """Of one place."""
        rows = place.batch.first_in_full(gradient).flatten(1)
        generator = torch.Generator().manual_seed(self.seed)
        signs = torch.randint(2, (rows.shape[1],), generator=generator).to(rows).mul_(2).sub_(1)
        largest = torch.linalg.vector_norm(rows, ord=torch.inf, dim=1)
        self.rows[place.index, place.output] = torch.stack([largest, rows @ signs]).double()

    def prove(self, weighted: "Sketches", weights: Tensor) -> None:
        """Raises `Unexpected` unless row i of every gradient follows the weight of loss i, and no other.

        Else row i of some layer belongs to another example, or to several.
        """
        scale = weights.double()
        for key, found in self.rows.items():
            if key not in weighted.rows:
                raise Unexpected("another backward pass reaches other calls")
            off = (weighted.rows[key] - found * scale).abs()
            near = off <= _CLOSE * found[0] * scale + _NOTHING * scale
            if (found.isfinite().all(dim=0) & ~near.all(dim=0)).any():
                raise Unexpected("some contents move examples to other rows, or mix them")
