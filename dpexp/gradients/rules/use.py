"""What a rule is told about one call, and what it gives back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from dpexp import _validate
from dpexp.gradients.batch import Batch
from dpexp.gradients.layout import Operation, Source
from dpexp.gradients.per_example import PerExample

__all__ = ["Finish", "Saved", "Use", "positions"]

Finish = Callable[[Sequence[Tensor]], Mapping[Source, PerExample]]
"""From the gradients at a call's outputs to the per-example gradients of its sources."""


@final
@dataclass(frozen=True)
class Use:
    """One call that uses sources.

    Attributes:
        operation: What the layout says of it.
        leaves: The leaves of its arguments.
    """

    operation: Operation
    leaves: Sequence[Any]

    def source(self, argument: Any) -> Source | None:
        """The source that an argument is, if it is one."""
        places = (i for i in self.operation.sources if self.leaves[i] is argument)
        return next((self.operation.sources[i] for i in places), None)

    def batch(self, argument: Tensor) -> Batch | None:
        """Where the examples are in an argument; None if they are not."""
        places = (i for i, leaf in enumerate(self.leaves) if leaf is argument)
        return next((self.operation.batches[i] for i in places), None)

    def leads(self, argument: Tensor) -> bool:
        """Whether an argument is (B, …)."""
        batch = self.batch(argument)
        return batch is not None and batch.leads

    @property
    def result(self) -> Batch:
        """Where the examples are in the one output."""
        batch = self.operation.results[0]
        assert batch is not None
        return batch

    def save(self, argument: Tensor) -> "Saved":
        """Keeps an argument until the gradients arrive."""
        name = next(iter(self.operation.sources.values()))
        return Saved(argument.detach(), argument._version, str(name), self.batch(argument))


@final
@dataclass(frozen=True)
class Saved:
    """A tensor as it was at a call."""

    _tensor: Tensor
    _version: int
    _name: str
    _batch: Batch | None

    @property
    def raw(self) -> Tensor:
        """The tensor, if nobody has written to it since."""
        if self._tensor._version != self._version:
            raise _validate.UserError(
                f"model: an input of the call that uses {self._name} was overwritten after it, expected it "
                "as it was.\nIts gradient cannot be found: replace the in-place operation after that layer."
            )
        return self._tensor

    @property
    def tensor(self) -> Tensor:
        """The tensor with its batch dimension first."""
        assert self._batch is not None
        return self._batch.first_in_full(self.raw)


def positions(tensor: Tensor) -> Tensor:
    """(B, …, d) as (B, T, d), where T counts everything between."""
    return tensor.reshape(len(tensor), -1, tensor.shape[-1])
