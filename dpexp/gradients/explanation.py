"""Which rule each parameter goes by, and what it costs: shown in plans, before anything runs."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from dpexp.gradients.layout import Operation, Source, layout_of
from dpexp.gradients.rules import RULES

__all__ = ["explain"]


def explain(model: nn.Module, inputs: Tensor, trained: Sequence[str] | None = None) -> Mapping[str, str]:
    """The rule of each trained parameter.

    Args:
        model: The model, in the mode that it trains in.
        inputs: Any rows of the declared shape (B, …) and dtype; only shape and dtype are used.
        trained: Names; None means all that require gradients.

    Returns:
        By parameter name: the functions that use it, with "torch.func" where such a call has no rule of its
        own and is differentiated again for each example.
    """
    names = trained or [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    layout = layout_of(model, inputs, names)
    if layout.reason:
        whole = f"torch.func on the whole model, with B gradients in memory, since {layout.reason}"
        return dict.fromkeys(names, whole)
    found: dict[str, list[str]] = {name: [] for name in names}
    for operation in layout.operations.values():
        for source in operation.sources.values():
            for name in _parameters(source, layout.operations):
                found[name].append(_rule(operation))
    return {name: " + ".join(dict.fromkeys(rules)) or "not used" for name, rules in found.items()}


def _parameters(source: Source, operations: Mapping[int, Operation]) -> list[str]:
    """The names that a source derives from."""
    if isinstance(source, str):
        return [source]
    return [
        name for parent in operations[source[0]].sources.values() for name in _parameters(parent, operations)
    ]


def _rule(operation: Operation) -> str:
    name = operation.function.__name__
    if operation.derives:
        return f"{name} of parameters"
    return name if operation.function in RULES else f"{name} by torch.func"
