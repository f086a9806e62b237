"""One rule for each function that is worth one; `generic` gives any other to `torch.func`, call by call."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from dpexp.gradients.interception import Function
from dpexp.gradients.rules.convolution import convolution, transposed_convolution
from dpexp.gradients.rules.elementwise import add, expand, mul
from dpexp.gradients.rules.embedding import embedding
from dpexp.gradients.rules.generic import Generic, generic
from dpexp.gradients.rules.linear import linear, matmul
from dpexp.gradients.rules.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from dpexp.gradients.rules.use import Finish, Use

__all__ = ["RULES", "Finish", "Generic", "Use", "generic"]

RULES: dict[Function, Callable[..., Finish | None]] = {
    functional.linear: linear,
    torch.matmul: matmul,
    torch.mm: matmul,
    Tensor.matmul: matmul,
    Tensor.mm: matmul,
    torch.conv1d: convolution,
    torch.conv2d: convolution,
    torch.conv3d: convolution,
    torch.conv_transpose1d: transposed_convolution,
    torch.conv_transpose2d: transposed_convolution,
    torch.conv_transpose3d: transposed_convolution,
    functional.embedding: embedding,
    functional.layer_norm: layer_norm,
    functional.rms_norm: rms_norm,
    functional.group_norm: group_norm,
    functional.instance_norm: instance_norm,
    functional.batch_norm: batch_norm,
    torch.add: add,
    Tensor.add: add,
    Tensor.add_: add,
    torch.mul: mul,
    Tensor.mul: mul,
    Tensor.expand: expand,
}
"""The rule of each function; a rule that returns None does not apply to that call."""
