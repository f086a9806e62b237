"""The interface of every sampler: what it draws, and what a release on it is to the accountant."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpexp import _validate
from dpexp.accounting import Event, Gaussian
from dpexp.streams import Stream

__all__ = ["LotStep", "Lots", "Rows", "Sampling", "uniform_subset", "whole_size"]

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LotStep:
    """One lot at one step: its expected size L and its q = L/N."""

    name: str
    size: float
    sampling_probability: float


class Lots(Protocol):
    """The lots t = 0, 1, … of one name, drawn from so many rows under one key."""

    def draw(self, index: int, lot: LotStep) -> Rows:
        """The rows of lot t = `index`, distinct, in no meaningful order, shape (n,).

        They are a function of (key, t) and `lot` alone, whatever was drawn before.
        """
        ...


class Sampling(Protocol):
    """The `sampling` config group: how lots are drawn, and what that is called by the accountant."""

    @property
    def name(self) -> str:
        """The name in config and tables."""
        ...

    @property
    def in_words(self) -> str:
        """How lots are drawn, as part of a sentence."""
        ...

    @property
    def if_known(self) -> str | None:
        """What still holds of lots that are no secret, in words; None where ε does not rest on secrecy."""
        ...

    @property
    def needs_num_examples(self) -> bool:
        """Whether lots are as `event` says only if there are exactly N rows."""
        ...

    @property
    def by_epoch(self) -> bool:
        """Whether `event` is that of a whole epoch, since its lots depend on each other."""
        ...

    def check(self, key: str, size: float, num_examples: int) -> None:
        """Refuses an L in (0, N] that such lots cannot have; `key` is where it was set.

        Raises:
            UserError: There is no such lot.
        """
        ...

    def lots_per_epoch(self, size: float, num_examples: int) -> float:
        """How many lots an epoch has; a whole number where lots are drawn by epoch."""
        ...

    def event(self, gaussian: Gaussian, size: float, num_examples: int) -> Event:
        """What a Gaussian release on such a lot is, or one on each lot of an epoch (`by_epoch`)."""
        ...

    def lots(self, stream: Stream, num_rows: int) -> Lots:
        """The lots under a secret stream, from `num_rows` true rows."""
        ...


def uniform_subset(generator: np.random.Generator, size: int, num_rows: int) -> Rows:
    """A uniform subset of so many of `num_rows` rows: O(size), and at most 50 · size, in time and memory."""
    return generator.choice(num_rows, size=size, replace=False, shuffle=False).astype(np.int64, copy=False)


def whole_size(key: str, size: float, num_examples: int, *, sampling: str) -> int:
    """L in [1, N] as an integer.

    Raises:
        UserError: It is none.
    """
    hint = f"Lots of sampling={sampling} have exactly L rows; sampling=poisson takes any L."
    whole = _validate.integer(key, size, at_least=1, hint=hint)
    _validate.number(key, whole, at_most=num_examples, hint=f"N = data.num_examples = {num_examples}.")
    return whole
