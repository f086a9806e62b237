"""Convolutions of one, two and three dimensions, and their transposes.

The gradient of one example's kernel is a convolution of its own. B of them are one convolution of one example
with B times the channels in B times the groups, which the libraries do as fast as the sum over the batch.
With few channels they do not, and windows times gradients, a matrix product, is faster.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

from dpexp.gradients.layout import Source
from dpexp.gradients.per_example import Factors, PerExample, Whole, masked, norms_of
from dpexp.gradients.rules.product import WRITE, chunks
from dpexp.gradients.rules.use import Finish, Use

__all__ = ["convolution", "transposed_convolution"]

_KERNEL_GRADIENTS: dict[int, Callable[..., Tensor]] = {1: conv1d_weight, 2: conv2d_weight, 3: conv3d_weight}
_MANY_CHANNELS = 8
_ROOM = 2
"""Kernels' gradients may take this many times the room of what they are made from: beyond, none is kept."""
_Size = int | Sequence[int]


@dataclass(frozen=True)
class _Geometry:
    shape: torch.Size  # of the kernel: (out, in / groups, *window)
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def dims(self) -> int:
        return len(self.stride)


def convolution(
    use: Use,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size | str = 0,
    dilation: _Size = 1,
    groups: int = 1,
) -> Finish | None:
    """Input (B, in, *S), kernel (out, in / groups, *window)."""
    dims = weight.ndim - 2
    if not use.leads(input):
        return None
    sides = _sides(padding, weight.shape[2:], _sizes(dilation, dims))
    even = tuple(before for before, _ in sides) if all(a == b for a, b in sides) else (0,) * dims
    geometry = _Geometry(weight.shape, _sizes(stride, dims), even, _sizes(dilation, dims), groups)
    uneven = [] if all(a == b for a, b in sides) else [n for pair in reversed(sides) for n in pair]
    weight_source, bias_source, result = use.source(weight), use.source(bias), use.result
    saved = None if weight_source is None else use.save(input)

    def finish(gradients: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        gradient = result.first_in_full(gradients[0])
        found: dict[Source, PerExample] = {}
        if bias_source is not None:
            found[bias_source] = Whole(gradient.flatten(2).sum(dim=2))
        if weight_source is not None and saved is not None:
            images = functional.pad(saved.tensor, uneven) if uneven else saved.tensor
            found[weight_source] = _kernel_gradients(images, gradient, geometry)
        return found

    return finish


def transposed_convolution(
    use: Use,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Size = 1,
    padding: _Size = 0,
    output_padding: _Size = 0,
    groups: int = 1,
    dilation: _Size = 1,
) -> Finish | None:
    """Input (B, in, *S), kernel (in, out / groups, *window): a convolution with the roles exchanged."""
    dims = weight.ndim - 2
    if not use.leads(input):
        return None
    sides = [
        (p, p - extra) for p, extra in zip(_sizes(padding, dims), _sizes(output_padding, dims), strict=True)
    ]
    even = (0,) * dims  # what the output is padded with, its convolution does not see: sides differ
    geometry = _Geometry(weight.shape, _sizes(stride, dims), even, _sizes(dilation, dims), groups)
    weight_source, bias_source, result = use.source(weight), use.source(bias), use.result
    saved = None if weight_source is None else use.save(input)

    def finish(gradients: Sequence[Tensor]) -> Mapping[Source, PerExample]:
        gradient = result.first_in_full(gradients[0])
        found: dict[Source, PerExample] = {}
        if bias_source is not None:
            found[bias_source] = Whole(gradient.flatten(2).sum(dim=2))
        if weight_source is not None and saved is not None:
            images = functional.pad(gradient, [n for pair in reversed(sides) for n in pair])
            found[weight_source] = _kernel_gradients(images, saved.tensor, geometry)
        return found

    return finish


def _kernel_gradients(images: Tensor, gradients: Tensor, geometry: _Geometry) -> PerExample:
    """Of images (B, in, *S) and gradients at the outputs (B, out, *S')."""
    if geometry.groups == 1 and not _writing_pays(gradients, geometry):
        return _Kernel(images, gradients, geometry, _gram_norms(images, gradients, geometry))
    times = prod(geometry.shape) / (images[:1].numel() + gradients[:1].numel())
    if times <= _ROOM:
        values = _written(images, gradients, geometry)
        return Whole(values, norms_of(values))
    norms = []
    for part in chunks(len(images), prod(geometry.shape), at_least=ceil(times / _ROOM)):
        norms.append(norms_of(_written(images[part], gradients[part], geometry)))
    return _Kernel(images, gradients, geometry, torch.cat(norms))


def _writing_pays(gradients: Tensor, geometry: _Geometry) -> bool:
    outs, *rest = geometry.shape
    length = prod(gradients.shape[2:])
    return outs * prod(rest) * WRITE < length**2 * (outs + prod(rest))


def _gram_norms(images: Tensor, gradients: Tensor, geometry: _Geometry) -> Tensor:
    right = _windows(images, geometry, gradients.shape[2:]).flatten(1, 1 + geometry.dims).flatten(2)
    return Factors(gradients.flatten(2).mT, right.mT).norms()


def _written(images: Tensor, gradients: Tensor, geometry: _Geometry) -> Tensor:
    write = _by_groups if _by_groups_pays(geometry) else _by_windows
    return write(images, gradients, geometry)


def _by_groups_pays(geometry: _Geometry) -> bool:
    many = geometry.shape[1] >= _MANY_CHANNELS and prod(geometry.shape[2:]) > 1
    return many or geometry.groups > 1


def _by_groups(images: Tensor, gradients: Tensor, geometry: _Geometry) -> Tensor:
    """In one call: the libraries are slow on few rows."""
    rows, (outs, *rest) = len(images), geometry.shape
    found = _KERNEL_GRADIENTS[geometry.dims](
        images.reshape(1, -1, *images.shape[2:]),
        torch.Size([rows * outs, *rest]),
        gradients.reshape(1, -1, *gradients.shape[2:]),
        geometry.stride,
        geometry.padding,
        geometry.dilation,
        rows * geometry.groups,
    )
    return found.view(rows, *geometry.shape)


def _by_windows(images: Tensor, gradients: Tensor, geometry: _Geometry) -> Tensor:
    """In parts, since windows take much more room than the images."""
    outs, *rest = geometry.shape
    values = images.new_empty(len(images), outs, prod(rest))
    left, windows = gradients.flatten(2), _windows(images, geometry, gradients.shape[2:])
    for rows in chunks(len(images), prod(rest) * left.shape[2]):
        right = windows[rows].reshape(-1, prod(rest), left.shape[2])
        torch.bmm(left[rows], right.mT, out=values[rows])
    return values.view(len(images), *geometry.shape)


def _windows(images: Tensor, geometry: _Geometry, outputs: Sequence[int]) -> Tensor:
    """What each output position sees: a view (B, in, *window, *S') of the padded images."""
    if any(geometry.padding):
        images = functional.pad(images, [n for n in reversed(geometry.padding) for _ in range(2)])
    images = images.contiguous()
    rows, channels, *steps = images.stride()
    inner = [step * d for step, d in zip(steps, geometry.dilation, strict=True)]
    outer = [step * s for step, s in zip(steps, geometry.stride, strict=True)]
    size = (*images.shape[:2], *geometry.shape[2:], *outputs)
    return images.as_strided(size, (rows, channels, *inner, *outer))


@dataclass(frozen=True)
class _Kernel:
    """Gradients too large to keep: only their norms are, and the sum is one convolution more.

    Attributes:
        images: Shape (B, in, *S).
        gradients: Shape (B, out, *S').
        geometry: Of the convolution.
        known: ‖g_i‖, shape (B,).
    """

    images: Tensor
    gradients: Tensor
    geometry: _Geometry
    known: Tensor

    def norms(self) -> Tensor:
        return self.known

    def weighted_sum(self, weights: Tensor) -> Tensor:
        weighted = self.gradients * weights.to(self.gradients.dtype).view(
            -1, *[1] * (self.gradients.ndim - 1)
        )
        g = self.geometry
        return _KERNEL_GRADIENTS[g.dims](
            self.images, g.shape, weighted, g.stride, g.padding, g.dilation, g.groups
        )

    def without(self, dropped: Tensor) -> "_Kernel":
        images, gradients = masked(self.images, dropped), masked(self.gradients, dropped)
        return _Kernel(images, gradients, self.geometry, self.known)

    def whole(self) -> Tensor:
        return _written(self.images, self.gradients, self.geometry)


def _sizes(size: _Size, dims: int) -> tuple[int, ...]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return sizes * dims if len(sizes) == 1 else sizes


def _sides(padding: _Size | str, window: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """Padding before and after, in each dimension."""
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    sizes = (0,) * len(window) if isinstance(padding, str) else _sizes(padding, len(window))
    return [(size, size) for size in sizes]
