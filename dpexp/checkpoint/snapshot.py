"""`Checkpoint`: the state of training between two lots, as tensors and plain values."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, final

import torch
from torch import Tensor

from dpexp import _validate

__all__ = ["Checkpoint", "CheckpointError", "packed", "unpacked"]

_FORMAT = 1


class CheckpointError(_validate.UserError):
    """A checkpoint cannot be written or trusted."""


@final
@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything that a run goes on from. No random state: lots and noise are drawn afresh.

    Attributes:
        run_id: The run.
        terms: Hash of all that must not change, in hexadecimal.
        steps: Optimizer steps in the parameters.
        charged_lots: Lots that the ledger had charged.
        head: The ledger's head when this was written.
        state: Parameters, optimizer, average of the weights, adaptive clip norms (`DPModule.state`).
    """

    run_id: str
    terms: str
    steps: int
    charged_lots: int
    head: str
    state: Mapping[str, Any]

    def packed(self) -> bytes:
        """The checkpoint as a file's content.

        Raises:
            CheckpointError: The state holds something else than tensors and plain values.
        """
        return packed({"format": _FORMAT, **{f.name: getattr(self, f.name) for f in fields(self)}})

    @classmethod
    def unpacked(cls, content: bytes) -> Self:
        """The checkpoint in a file's content; runs no code from it.

        Raises:
            CheckpointError: It is none.
        """
        values = unpacked(content)
        version = values.pop("format", None)
        if version != _FORMAT:
            raise CheckpointError(f"the checkpoint has format {version!r}, expected {_FORMAT}.")
        try:
            return cls(**values)
        except TypeError as error:
            raise CheckpointError(f"the checkpoint has other parts than expected: {error}.") from error


def packed(values: Mapping[str, Any]) -> bytes:
    """Tensors and plain values as bytes that `unpacked` reads without running code."""
    buffer = io.BytesIO()
    torch.save(_plain(values, ""), buffer)
    return buffer.getvalue()


def unpacked(content: bytes) -> dict[str, Any]:
    """What `packed` packed.

    Raises:
        CheckpointError: It is something else.
    """
    try:
        values = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(f"it cannot be read: {str(error).splitlines()[0]}.") from error
    if not isinstance(values, dict):
        raise CheckpointError("it holds no named values.")
    return values


def _plain(value: Any, path: str) -> Any:
    """A copy on the CPU, of tensors, numbers, words, lists, tuples and mappings only."""
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(part, f"{path}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_plain(part, f"{path}.{index}") for index, part in enumerate(value)]
        return parts if isinstance(value, list) else tuple(parts)
    raise CheckpointError(
        f"checkpoint: {path.lstrip('.')} is a {type(value).__qualname__}, expected tensors and plain values, "
        "since checkpoints are read without running code.\nKeep such a thing out of the state of model and "
        "optimizer, or train without checkpoints: checkpoint.keep=0."
    )
