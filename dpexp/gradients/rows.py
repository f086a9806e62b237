"""Whether a call leaves every example in its row.

Rules pair row i of one layer's input with row i of another's, so rows may not change places in between: not
even where they are put back later, nor by an order that only some contents bring about (sorting by length). A
model that moves rows goes to `torch.func`, which sees one example at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree

from dpexp.gradients.interception import Function, leaves_of

__all__ = ["keeps_rows", "may_move_rows", "moved_tensor", "order_of_dimensions"]

# Where the dimension is among the arguments, and which it is if it is left out; None: all of them.
_ALONG: Mapping[str, tuple[int, Any]] = {
    "__reversed__": (1, 0),
    "chunk": (2, 0),
    "flip": (1, None),
    "fliplr": (1, 1),
    "flipud": (1, 0),
    "gather": (1, None),
    "grid_sample": (9, (1, 2, 3, -1)),
    "index_add": (1, None),
    "index_copy": (1, None),
    "index_fill": (1, None),
    "index_reduce": (1, None),
    "index_select": (1, None),
    "narrow": (1, None),
    "repeat_interleave": (2, None),
    "roll": (2, None),
    "rot90": (2, (0, 1)),
    "scatter": (1, None),
    "scatter_add": (1, None),
    "scatter_reduce": (1, None),
    "select": (1, None),
    "sort": (1, -1),
    "split": (2, 0),
    "split_with_sizes": (2, 0),
    "take_along_dim": (2, None),
    "tensor_split": (2, 0),
    "topk": (2, -1),
    "unbind": (1, 0),
    "unsafe_chunk": (2, 0),
    "unsafe_split": (2, 0),
}
_LOOKUPS: Mapping[Function, int] = {  # where the table is among the arguments: it may be of examples
    functional.embedding: 1,
    functional.embedding_bag: 1,
    torch.embedding: 0,
    torch.embedding_bag: 0,
}
_SEVERAL = ("flip", "roll")  # dimensions may follow one by one
_ANYWHERE = frozenset(
    {
        "__array__",
        "apply",
        "as_strided",
        "dsplit",
        "hsplit",
        "index_put",
        "map",
        "masked_scatter",
        "masked_select",
        "msort",
        "numpy",
        "put",
        "resize",
        "take",
        "tolist",
        "unique",
        "unique_consecutive",
        "vsplit",
    }
)


_ORDERS = frozenset({"movedim", "moveaxis", "permute", "swapaxes", "swapdims", "transpose"})


def order_of_dimensions(
    function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Sequence[Any] | None:
    """What such a call says of dimensions, where it reorders them: the same in every pass."""
    if _name(function) not in _ORDERS:
        return None
    return [leaf for leaf in leaves_of((arguments, keywords)) if not isinstance(leaf, Tensor)]


def may_move_rows(function: Function) -> bool:
    """Whether calls of the function have to be looked at, each time."""
    name = _name(function)
    return function in _LOOKUPS or name in _INDEXING or name in _ALONG or name in _ANYWHERE


def moved_tensor(function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """The tensor whose entries such a call takes or sets."""
    place, name = (_LOOKUPS[function], "weight") if function in _LOOKUPS else (0, "input")
    return arguments[place] if len(arguments) > place else keywords.get(name)


def keeps_rows(
    function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any], dim: int, batch_size: int
) -> bool:
    """Whether such a call leaves the examples, along `dim` of its tensor, where they are.

    Args:
        function: One of those that `may_move_rows`.
        arguments: What it is called with.
        keywords: Likewise.
        dim: The dimension that counts examples.
        batch_size: B.
    """
    name = _name(function)
    if function in _LOOKUPS:
        return False
    if name in _INDEXING:
        return _INDEXING[name](dim, batch_size, *arguments)
    if name in _ANYWHERE:
        return False
    place, default = _ALONG[name]
    given = keywords.get("dim", keywords.get("dims"))
    if given is None and len(arguments) > place:
        given = arguments[place:] if name in _SEVERAL else arguments[place]
    given = default if given is None else given
    dims = _pytree.tree_leaves(given)
    ndim = moved_tensor(function, arguments, keywords).ndim
    return bool(dims) and all(isinstance(other, int) and other % ndim != dim for other in dims)


def _taking_keeps(dim: int, batch_size: int, tensor: Tensor, index: Any) -> bool:
    found, _ = _at(dim, tensor, index)
    if isinstance(found, slice):
        return found == slice(None)
    if not isinstance(found, Tensor) or found.dtype in (torch.bool, torch.uint8) or not found.ndim:
        return False
    if len(found) != batch_size or tensor.shape[dim] != batch_size:
        return False
    # Any order is right that is none: `h[torch.arange(B), last]`.
    own = torch.arange(batch_size, device=found.device).view(-1, *[1] * (found.ndim - 1))
    return bool((found == own).all())


def _setting_keeps(dim: int, batch_size: int, tensor: Tensor, index: Any, value: Any) -> bool:
    found, rest = _at(dim, tensor, index)
    if isinstance(found, Tensor) and found.dtype == torch.bool:  # one value for all that is chosen
        return not isinstance(value, Tensor) or value.ndim <= rest
    return _taking_keeps(dim, batch_size, tensor, index)


_INDEXING: Mapping[str, Callable[..., bool]] = {"__getitem__": _taking_keeps, "__setitem__": _setting_keeps}


def _at(dim: int, tensor: Tensor, index: Any) -> tuple[Any, int]:
    """What of an index stands at a dimension, and how many dimensions are behind it."""
    parts = list(index) if isinstance(index, tuple) else [index]
    widths = [_width(part) for part in parts]
    free = tensor.ndim - sum(widths)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        width = free if part is Ellipsis else width
        if start <= dim < start + width:
            return (slice(None) if part is Ellipsis else part), tensor.ndim - start - width
        start += width
    return slice(None), 0


def _width(part: Any) -> int:
    """How many dimensions a part of an index takes."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) else 1


def _name(function: Function) -> str:
    name = getattr(function, "__name__", "")
    return name if name.startswith("__") else name.rstrip("_")
