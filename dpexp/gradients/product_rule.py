"""Clipped sums for linear layers in one backward pass, without any per-example gradient.

For a linear layer the gradient of one example is the outer product of the gradient at its output, b_i,
and its input, a_i, so that ‖g_i‖² = ‖a_i‖²·‖b_i‖² (Goodfellow 2015, arXiv 1510.01799v2, section 4),
and with weights w_i the clipped sum is Σ_i w_i b_i a_iᵀ = (w·B)ᵀ A: one matrix product.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.utils import parametrize

from dpexp.gradients.clipped import ClipGroup, ClippedSum, Loss, per_example_losses, weights_of

__all__ = ["product_rule"]


def product_rule(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: Sequence[ClipGroup]
) -> ClippedSum | None:
    """The clipped sums of one microbatch, or None where the rule does not hold for the model.

    The rule holds where every parameter in `groups` is the weight or bias of an `nn.Linear` that is
    called once, on inputs of shape (B, features), and is used nowhere else.
    """
    names = [name for group in groups for name in group.parameters]
    layers = _linear_layers(model, names)
    if layers is None:
        return None
    with _recording(model, layers) as tape:
        losses = per_example_losses(loss(model(inputs), targets), len(inputs))
    if not tape.holds(losses, names):
        return None
    tape.differentiate(losses)
    norms = torch.stack([tape.norms(group, losses.detach()) for group in groups])
    weights = weights_of(groups, norms)
    tape.drop_examples(~norms.isfinite().all(dim=0))
    sums = {
        name: tape.weighted_sum(name, weight)
        for group, weight in zip(groups, weights, strict=True)
        for name in group.parameters
    }
    return ClippedSum(sums=sums, norms=norms, losses=losses.detach())


@dataclass
class _Call:
    """One call of a linear layer: input a (B, in), the edge of its output, and the gradient b (B, out)."""

    layer: nn.Linear
    activation: Tensor
    edge: GradientEdge
    gradient: Tensor = field(init=False)


class _Tape:
    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.calls: dict[str, _Call] = {}
        self._simple = True

    def record(self, name: str, layer: nn.Linear, activation: Tensor, output: Tensor) -> None:
        self._simple &= name not in self.calls and activation.ndim == 2 and output.grad_fn is not None
        if output.grad_fn is not None:
            # The edge, not the tensor: an in-place activation later rebinds the tensor to its own node.
            self.calls[name] = _Call(layer, activation.detach(), get_gradient_edge(output))

    def holds(self, losses: Tensor, names: Sequence[str]) -> bool:
        """Whether each parameter's one use in the graph is the recorded call of its layer, or it has none."""
        if not self._simple or losses.grad_fn is None:
            return False
        uses = _uses(losses.grad_fn)
        return all(
            uses.get(self._model.get_parameter(name), 0) == (_module(name) in self.calls) for name in names
        )

    def differentiate(self, losses: Tensor) -> None:
        calls = list(self.calls.values())
        edges = [call.edge for call in calls]
        # Only the gradients at the outputs are asked for, so no weight gradient is ever formed.
        for call, gradient in zip(calls, torch.autograd.grad(losses.sum(), edges), strict=True):
            call.gradient = gradient

    def norms(self, group: ClipGroup, losses: Tensor) -> Tensor:
        used = [name for name in group.parameters if _module(name) in self.calls]
        squares = [self._squared_norms(name) for name in used] or [torch.zeros_like(losses)]
        return torch.stack(squares).sum(dim=0).sqrt()

    def _squared_norms(self, name: str) -> Tensor:
        call = self.calls[_module(name)]
        at_output = call.gradient.square().sum(dim=1)
        return at_output if name.endswith("bias") else at_output * call.activation.square().sum(dim=1)

    def drop_examples(self, dropped: Tensor) -> None:
        """Zeroes the rows of examples with weight 0 whose numbers are not finite (0 · ∞ is NaN)."""
        if not dropped.any():
            return
        for call in self.calls.values():
            call.activation = call.activation.masked_fill(dropped[:, None], 0.0)
            call.gradient = call.gradient.masked_fill(dropped[:, None], 0.0)

    def weighted_sum(self, name: str, weights: Tensor) -> Tensor:
        if _module(name) not in self.calls:
            return torch.zeros_like(self._model.get_parameter(name)).detach()
        call = self.calls[_module(name)]
        if name.endswith("bias"):
            return weights @ call.gradient
        return (call.gradient * weights[:, None]).T @ call.activation


@contextmanager
def _recording(model: nn.Module, layers: Mapping[str, nn.Linear]) -> Iterator[_Tape]:
    """Hooks the layers for one forward pass; no hook outlives the block."""
    tape = _Tape(model)
    handles = [
        layer.register_forward_hook(
            lambda module, arguments, output, name=name: tape.record(name, module, arguments[0], output)
        )
        for name, layer in layers.items()
    ]
    try:
        yield tape
    finally:
        for handle in handles:
            handle.remove()


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _linear_layers(model: nn.Module, names: Sequence[str]) -> dict[str, nn.Linear] | None:
    """The layers that own the parameters, if all are plain `nn.Linear`s; otherwise None."""
    layers: dict[str, nn.Linear] = {}
    for name in names:
        module = model.get_submodule(_module(name))
        # A subclass may compute anything in its forward, and a parametrized layer is one.
        if type(module) is not nn.Linear or parametrize.is_parametrized(module):
            return None
        layers[_module(name)] = module
    return layers


def _uses(root: torch.autograd.graph.Node) -> dict[Tensor, int]:
    """How often each parameter enters the graph below `root`."""
    uses: dict[Tensor, int] = {}
    seen, stack = {root}, [root]
    while stack:
        for node, _ in stack.pop().next_functions:
            variable = getattr(node, "variable", None)  # only AccumulateGrad nodes have one
            if variable is not None:
                uses[variable] = uses.get(variable, 0) + 1
            elif node is not None and node not in seen:
                seen.add(node)
                stack.append(node)
    return uses
