"""Seeing every call of a torch function during a forward pass, without touching the model.

A rule is tied to the *function* that uses a parameter (`torch.nn.functional.linear`, `torch.conv2d`, `+`),
not to the type of a module: subclasses, bare parameters, tied weights and functional code are then all alike.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from dpexp.gradients.recurrent import unrolled

__all__ = ["Function", "Interception", "leaves_of", "opened", "tensors_of"]

Function = Callable[..., Any]

# Functions made of others that hold parameters: their inner calls are what has a rule.
_COMPOSITES = frozenset({functional.multi_head_attention_forward})


class Interception(TorchFunctionMode):
    """Counts the calls of one forward pass, and lets a subclass look at each."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self,
        function: Function,
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by torch in place of `function`."""
        keywords = keywords or {}
        inside = _inside(function, arguments, keywords)
        if inside is not None:
            with self:
                return inside(*arguments, **keywords)
        index = self.calls
        self.calls += 1
        return self.observe(index, function, arguments, keywords)

    @abstractmethod
    def observe(
        self, index: int, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Runs the call number `index` and returns its result."""


def leaves_of(structure: Any) -> list[Any]:
    """What nested lists, tuples and dicts hold, in order."""
    leaves: list[Any] = []
    _collect(structure, leaves)
    return leaves


def tensors_of(structure: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts, in order."""
    return [leaf for leaf in leaves_of(structure) if isinstance(leaf, Tensor)]


def _collect(structure: Any, leaves: list[Any]) -> None:
    # Like torch's pytree on these three, at a fraction of its cost; subclasses are left to it.
    kind = type(structure)
    if kind is tuple or kind is list:
        for part in structure:
            _collect(part, leaves)
    elif kind is dict:
        for part in structure.values():
            _collect(part, leaves)
    elif isinstance(structure, tuple | list | dict):
        leaves.extend(_pytree.tree_leaves(structure))
    else:
        leaves.append(structure)


def _inside(function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Function | None:
    """The function in calls that have a rule, where it is made of such."""
    if function in _COMPOSITES:
        return opened(function)
    steps = unrolled(function, arguments, keywords)
    return None if steps is function else steps


@cache
def opened(function: Function) -> Function:
    """The same function without its own stop for torch functions, so that only its inner calls stop."""
    assert isinstance(function, FunctionType)
    silent = {"has_torch_function": _never, "has_torch_function_variadic": _never}
    opened = FunctionType(function.__code__, function.__globals__ | silent, function.__name__)
    opened.__defaults__, opened.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return opened


def _never(*_: Any) -> bool:
    return False
