"""Whether a call is known to leave every example in its row.

Rules pair row i of one layer's input with row i of another's, so rows may not change places in between: not
even where they are put back later, nor by an order that only some contents bring about (sorting by length).
Listed here are calls that cannot do so, whatever the contents. A model with any other call is not refused:
each of its passes is proven instead (`book_keeping`), which takes a second backward pass.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, final

from torch import Size, Tensor
from torch.utils import _pytree

from dpexp.gradients.interception import Function, leaves_of

__all__ = ["Seen", "leaves_rows", "order_of_dimensions", "reshaped_to", "varying"]


@final
@dataclass(frozen=True)
class Seen:
    """One call of a forward pass.

    Attributes:
        function: What was called.
        arguments: With what.
        keywords: Likewise.
        leaves: The leaves of both.
        outputs: The tensors that it returned.
        shapes: Of the leaves before the call and of the outputs after it; None of what is no tensor.
    """

    function: Function
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    leaves: Sequence[Any]
    outputs: Sequence[Tensor]
    shapes: Sequence[Size | None]

    @property
    def tensors(self) -> list[Any]:
        """The leaves, then the outputs."""
        return [*self.leaves, *self.outputs]

    @cached_property
    def name(self) -> str:
        """The function's, without the sign of what works in place."""
        name = str(getattr(self.function, "__name__", ""))
        return name if name.startswith("__") else name.rstrip("_")

    def argument(self, place: int, *names: str, default: Any = None) -> Any:
        """An argument by its place or by one of its names."""
        for name in names:
            if name in self.keywords:
                return self.keywords[name]
        return self.arguments[place] if len(self.arguments) > place else default


def order_of_dimensions(
    function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Sequence[Any] | None:
    """What such a call says of dimensions, where it reorders them: the same in every pass."""
    if str(getattr(function, "__name__", "")).rstrip("_") not in _ORDERS:
        return None
    return [leaf for leaf in leaves_of((arguments, keywords)) if not isinstance(leaf, Tensor)]


def varying(small: Size | None, large: Size | None) -> list[int]:
    """The dimensions in which a tensor of two examples differs from that of three."""
    if small is None or large is None or len(small) != len(large):
        return []
    return [dim for dim, (a, b) in enumerate(zip(small, large, strict=True)) if a != b]


def leaves_rows(small: Seen, large: Seen, folded: dict[int, int]) -> bool:
    """Whether a call, seen with two and with three examples, cannot move an example, whatever it contains.

    Args:
        small: The call with two examples.
        large: The same with three.
        folded: By a tensor's id, how many entries of its dimension of examples come before the next example:
            T where (T, B) is one dimension. What the call returns is added.
    """
    ranks = [len(shape or ()) for shape in small.shapes]
    if ranks != [len(shape or ()) for shape in large.shapes]:  # or a list as long as the batch
        return False
    places = [varying(*shapes) for shapes in zip(small.shapes, large.shapes, strict=True)]
    found = [_Place(i, dims[0], ranks[i]) for i, dims in enumerate(places) if dims]
    inputs = [place for place in found if place.index < len(small.leaves)]
    outputs = found[len(inputs) :]
    if not inputs:  # of parameters and of numbers: the same for all contents
        return True
    if any(len(dims) > 1 for dims in places) or len(outputs) < len(small.outputs):
        return False
    check = _CHECKS.get(small.name) if _of_torch(small.function) else None
    factors = {folded.get(id(small.leaves[place.index]), 1) for place in inputs}
    if check is None or len(factors) > 1 or not check(small, inputs, outputs):
        return False
    [factor] = factors
    for place in outputs:
        after = _refolded(small, inputs[0], place, factor) if check is _reshaped else factor
        if after is None:
            return False
        folded[id(small.tensors[place.index])] = after
    return True


def _refolded(call: Seen, before: "_Place", after: "_Place", factor: int) -> int | None:
    """As many entries are slower than the examples as were; None where that cannot be: they are scrambled."""
    old, new = call.shapes[before.index] or (), call.shapes[after.index] or ()
    slower, outside = math.prod(old[: before.dim]) * factor, math.prod(new[: after.dim])
    inside, fold = divmod(slower, outside)[0], new[after.dim] // 2
    fits = outside * inside == slower and inside >= 1 and fold % inside == 0
    return inside if fits else None


def reshaped_to(small: Seen, large: Seen) -> Sequence[tuple[int | None, ...]]:
    """The shapes that a call reshapes tensors to, with None for a dimension that follows the batch."""
    if _CHECKS.get(small.name) is not _reshaped or len(small.shapes) != len(large.shapes):
        return ()
    pairs = list(zip(small.shapes, large.shapes, strict=True))[len(small.leaves) :]
    return [
        tuple(None if dim in varying(*pair) else size for dim, size in enumerate(pair[0] or ()))
        for pair in pairs
    ]


def _of_torch(function: Function) -> bool:
    """Not another function of the same name."""
    if isinstance(function, FunctionType):
        return function.__module__.partition(".")[0] == "torch"
    return isinstance(
        function, BuiltinFunctionType | MethodDescriptorType | MethodWrapperType | WrapperDescriptorType
    )


@dataclass(frozen=True)
class _Place:
    """Where the examples are in one of a call's tensors."""

    index: int
    dim: int
    rank: int

    @property
    def from_last(self) -> int:
        return self.rank - self.dim


_Places = Sequence[_Place]
_Check = Callable[[Seen, _Places, _Places], bool]


def _no_tensor(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    return not outputs


def _elementwise(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Broadcasting counts dimensions from the last."""
    return len({place.from_last for place in (*inputs, *outputs)}) == 1


def _first(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Layers of channels and images: examples come first, and in one argument only."""
    return len(inputs) == 1 and all(place.dim == 0 for place in (*inputs, *outputs))


def _not_last(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """A linear layer: the last dimension of its input is contracted, the others stay."""
    [place, *others] = inputs
    return not others and place.dim == outputs[0].dim < place.rank - 1


def _normalized(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """The last dimensions are normalized; scale and shift have no examples."""
    width = len(_pytree.tree_leaves(call.argument(1, "normalized_shape")))
    return len(inputs) == 1 and inputs[0].dim == outputs[0].dim < inputs[0].rank - width


def _table(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Looked up by examples, in a table that is of none."""
    [place, *others] = inputs
    return not others and place.dim == outputs[0].dim and place.rank + 1 == outputs[0].rank


def _product(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Matrices: no dimension of examples is contracted, and all have them in the same place."""
    if len(call.arguments) != 2 or len({place.from_last for place in (*inputs, *outputs)}) != 1:
        return False
    # Of the left matrix, the rows stay in their places too.
    return all(place.from_last > 2 or (place.from_last == 2 and place.index == 0) for place in inputs)


def _attention(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Queries, keys and values with examples before positions; a mask may have them too."""
    return _elementwise(call, inputs, outputs) and inputs[0].from_last > 2


def _ordered(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Dimensions in another order, which no content can enter."""
    return len(inputs) == 1


def _reshaped(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Where the examples come to is looked at apart."""
    return len(inputs) == 1


def _fixed(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Batch normalization with statistics of its own, none of the batch."""
    return call.argument(5, "training", default=False) is False and _first(call, inputs, outputs)


def _instances(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Without running statistics."""
    return call.argument(1, "running_mean") is None and _first(call, inputs, outputs)


def _attribute(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """What says nothing of contents, and gives no hold on the graph."""
    return getattr(getattr(call.function, "__self__", None), "__name__", "") in _ATTRIBUTES


def _along(place: int, default: Any = None) -> _Check:
    """Calls along dimensions, which may not be that of the examples."""

    def check(call: Seen, inputs: _Places, outputs: _Places) -> bool:
        dims = _pytree.tree_leaves(call.argument(place, "dim", "axis", default=default))
        known = bool(dims) and all(type(dim) is int for dim in dims)
        return known and all(dim % own.rank != own.dim for dim in dims for own in inputs)

    return check


def _joined(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Tensors side by side, with examples in the same place."""
    return len({place.dim for place in inputs}) == 1 and _along(1, 0)(call, inputs, outputs)


def _stacked(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Along a new dimension."""
    return len({place.dim for place in inputs}) == 1


def _indexed(call: Seen, inputs: _Places, outputs: _Places) -> bool:
    """Entries of each example by whole numbers and slices; of the examples, all."""
    index = call.argument(1)
    parts = [part for part in (index if isinstance(index, tuple) else (index,)) if part is not None]
    if any(part is not Ellipsis and type(part) not in (int, slice) for part in parts):
        return False
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (inputs[0].rank - len(parts) + 1)
    dim = inputs[0].dim
    return len(inputs) == 1 and (dim >= len(parts) or parts[dim] == slice(None))


_ATTRIBUTES = frozenset(
    {
        "device",
        "dtype",
        "is_cpu",
        "is_cuda",
        "is_meta",
        "is_nested",
        "is_sparse",
        "layout",
        "ndim",
        "requires_grad",
        "shape",
    }
)
_ORDERS = frozenset({"movedim", "moveaxis", "permute", "swapaxes", "swapdims", "transpose"})


def _named(check: _Check, names: str) -> dict[str, _Check]:
    return dict.fromkeys(names.split(), check)


_CHECKS: Mapping[str, _Check] = {
    **_named(
        _no_tensor,
        "__len__ dim is_complex is_contiguous is_floating_point is_same_size numel size stride",
    ),
    **_named(
        _elementwise,
        "__add__ __and__ __div__ __eq__ __ge__ __gt__ __invert__ __le__ __lt__ __mul__ __ne__ __or__ "
        "__pow__ __radd__ __rdiv__ __rmul__ __rpow__ __rsub__ __rtruediv__ __sub__ __truediv__ abs add "
        "bool celu clamp clip clone contiguous cos detach div divide double dropout dropout1d dropout2d "
        "dropout3d elu eq erf exp expm1 float ge gelu gt hardshrink hardsigmoid hardswish hardtanh le "
        "leaky_relu log log1p log2 logical_and logical_not logical_or logsigmoid long lt masked_fill "
        "maximum minimum mish mul multiply ne neg negative ones_like pow reciprocal relu relu6 rsqrt rsub "
        "selu sigmoid sign silu sin softplus softsign sqrt square sub subtract tanh to true_divide "
        "type_as where zeros_like",
    ),
    **_named(
        _first,
        "_max_pool1d _max_pool2d _max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "avg_pool1d avg_pool2d avg_pool3d conv1d conv2d conv3d conv_transpose1d "
        "conv_transpose2d conv_transpose3d group_norm max_pool1d max_pool2d max_pool3d "
        "pixel_shuffle pixel_unshuffle",
    ),
    **_named(_attribute, "__get__"),
    **_named(_fixed, "batch_norm"),
    **_named(_instances, "instance_norm"),
    **_named(_not_last, "linear"),
    **_named(_normalized, "layer_norm rms_norm"),
    **_named(_table, "embedding"),
    **_named(_attention, "scaled_dot_product_attention"),
    **_named(
        _reshaped,
        "expand flatten reshape squeeze unflatten unsqueeze view",
    ),
    **_named(_along(1), "amax amin log_softmax logsumexp mean select softmax std sum var"),
    **_named(_along(2, 0), "chunk split tensor_split"),
    **_named(_along(1, 0), "unbind"),
    **_named(_product, "__matmul__ bmm matmul mm"),
    **dict.fromkeys(_ORDERS, _ordered),
    **_named(_joined, "cat concat concatenate"),
    **_named(_stacked, "stack"),
    **_named(_indexed, "__getitem__"),
}
