"""Tensors out of a file in the format of safetensors: a header in JSON, then raw bytes. Nothing is run."""

import json
import math

import numpy as np
import torch
from torch import Tensor

__all__ = ["tensors_of"]

_LENGTH_BYTES = 8


def tensors_of(content: bytes) -> dict[str, Tensor]:
    """The float32 tensors of a file, by name; those of other types are left out.

    https://huggingface.co/docs/safetensors: eight bytes of length (little-endian), so much JSON, the bytes.

    Raises:
        ValueError: It is no such file.
    """
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if len(content) < _LENGTH_BYTES + length:
        raise ValueError("the header of a safetensors file is longer than the file")
    header = json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
    body = memoryview(content)[_LENGTH_BYTES + length :]
    return {
        name: _tensor(name, body, entry)
        for name, entry in header.items()
        if name != "__metadata__" and entry["dtype"] == "F32"
    }


def _tensor(name: str, body: memoryview, entry: dict[str, list[int]]) -> Tensor:
    (start, end), shape = entry["data_offsets"], entry["shape"]
    if not 0 <= start <= end <= len(body) or end - start != 4 * math.prod(shape):
        raise ValueError(f"{name} is not where the header of a safetensors file says")
    return torch.from_numpy(np.frombuffer(body[start:end], "<f4").astype(np.float32)).reshape(shape)
